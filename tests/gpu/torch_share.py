"""Shares GPU memory with PyTorch both ways; the other side is torch_peer.

Usage: torch_share.py PATH_OF_TORCH_PEER.  Exit status 77: there is no PyTorch with a GPU.
"""
# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

HANDLE_BYTES = 64
TENSOR_BYTES = 3 << 20


def torch_reads(torch, peer):
    """PyTorch opens memory that the peer made, from a tuple put together here."""
    process = subprocess.Popen([peer, "give", str(TENSOR_BYTES)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    handle = bytes.fromhex(process.stdout.readline().decode().strip())
    sample = torch.zeros(1, device="cuda").untyped_storage()._share_cuda_()
    prefix = sample[1][:-HANDLE_BYTES]  # newer versions say which kind of handle follows
    storage = torch.UntypedStorage._new_shared_cuda(
        sample[0], prefix + handle, TENSOR_BYTES, 0, sample[4], sample[5], sample[6], False)
    found = torch.tensor([], dtype=torch.uint8, device="cuda").set_(storage).cpu()
    wanted = (torch.arange(TENSOR_BYTES) % 251).to(torch.uint8)
    process.stdin.close()
    process.wait(timeout=30)
    return bool(torch.equal(found, wanted))


def peer_reads(torch, peer):
    """The peer opens a tensor by the tuple that PyTorch writes."""
    tensor = (torch.arange(TENSOR_BYTES, device="cuda") % 249).to(torch.uint8)
    torch.cuda.synchronize()
    _, handle, size_bytes, offset_bytes, *_ = tensor.untyped_storage()._share_cuda_()
    answer = subprocess.run(
        [peer, "take", handle[-HANDLE_BYTES:].hex(), str(offset_bytes + size_bytes), str(offset_bytes),
         str(TENSOR_BYTES)],
        stdout=subprocess.PIPE, timeout=30, check=True)
    return int(answer.stdout) == int(tensor.to(torch.int64).sum())


def main():
    """Runs both ways and prints what came of it."""
    try:
        import torch
    except ImportError:
        print("skipped: no PyTorch")
        return 77
    if not torch.cuda.is_available():
        print("skipped: PyTorch", torch.__version__, "sees no GPU")
        return 77
    results = {"torch reads a tuple written here": torch_reads(torch, sys.argv[1]),
               "a tuple of torch is read here": peer_reads(torch, sys.argv[1])}
    print("PyTorch", torch.__version__)
    for name, result in results.items():
        print(f"{name}: {'yes' if result else 'NO'}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
