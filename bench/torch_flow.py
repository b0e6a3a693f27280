# SPDX-License-Identifier: Apache-2.0
"""torch_flow.py CONFIG LAYERS VOCABULARY: sends weights from trainers to engines in the usual way of PyTorch.

Two trainer processes, each with every tensor, as after a gather; an engine of two processes with
heads, rows or columns.  A trainer puts a tensor (or a bucket of them) into shared memory and
pickles the handle; gather_object() brings the handles to the first trainer, which sends them to
the engine's first rank, which passes them on; each rank opens its own trainer's memory, narrows
every tensor to its slice, and copies it.  Nothing of this is Tandem's.

Started by a bench program, it says on descriptor 3 whether PyTorch is there (r or n), and then
answers each letter when it is done: s, the trainers have other weights; t, an update a tensor at
a time; b, one in buckets; c, a look at all weights (k: they are there, w: they are not).  It ends
with its other side.
"""
import io
import json
import multiprocessing
import os
import socket
import sys
import tempfile

LINE_FD = 3
BUCKET_BYTES = 64 << 20
RANKS = 2
WHOLE, ROWS, COLUMNS = None, 0, 1  # Dimension along which a tensor is divided over an engine's ranks.


def tensors_of(config_path, layers, vocabulary):
    """Returns (name, shape, dimension that the engine divides) of every tensor."""
    with open(config_path, encoding="utf-8") as file:
        config = json.load(file)
    hidden = config["hidden_size"]
    head = config["head_dim"]
    query = config["num_attention_heads"] * head
    key = config["num_key_value_heads"] * head
    mlp = config["intermediate_size"]
    layer = [("input_layernorm", (hidden,), WHOLE), ("self_attn.q_proj", (query, hidden), ROWS),
             ("self_attn.k_proj", (key, hidden), ROWS), ("self_attn.v_proj", (key, hidden), ROWS),
             ("self_attn.o_proj", (hidden, query), COLUMNS), ("self_attn.q_norm", (head,), WHOLE),
             ("self_attn.k_norm", (head,), WHOLE),
             ("post_attention_layernorm", (hidden,), WHOLE), ("mlp.gate_proj", (mlp, hidden), ROWS),
             ("mlp.up_proj", (mlp, hidden), ROWS), ("mlp.down_proj", (hidden, mlp), COLUMNS)]
    found = [("model.embed_tokens.weight", (vocabulary, hidden), ROWS)]
    for index in range(layers):
        found += [(f"model.layers.{index}.{name}.weight", shape, cut)
                  for name, shape, cut in layer]
    return found + [("model.norm.weight", (hidden,), WHOLE)]


def narrowed(tensor, cut, rank):
    if cut is WHOLE:
        return tensor
    each = tensor.shape[cut] // RANKS
    return tensor.narrow(cut, rank * each, each)


def pickled(thing):
    """Pickles a value with handles in place of shared tensors."""
    buffer = io.BytesIO()
    torch.multiprocessing.reductions.ForkingPickler(buffer).dump(thing)
    return buffer.getvalue()


# ---- trainers ---------------------------------------------------------------------------------

class Trainer:
    def __init__(self, rank, tensors, engine, rendezvous):
        torch.set_num_threads(1)
        torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank,
                                             world_size=RANKS)
        self.rank = rank
        self.tensors = tensors
        self.engine = engine  # The first trainer's connection to the engine.
        self.turn = 0
        self.weights = [torch.empty(shape, dtype=torch.bfloat16) for _, shape, _ in tensors]
        self.step()

    def step(self):
        self.turn += 1
        for index, weight in enumerate(self.weights):
            weight.fill_((self.turn * 31 + index) % 251)

    def send(self, thing):
        """Sends a message and returns when the engine has it, so that the memory may be freed."""
        gathered = [None] * RANKS if self.rank == 0 else None
        torch.distributed.gather_object(pickled(thing), gathered, dst=0)
        if self.rank == 0:
            self.engine.send(gathered)
            self.engine.recv()
        torch.distributed.barrier()

    def update_by_tensor(self):
        for index, weight in enumerate(self.weights):
            self.send([(index, weight.clone().share_memory_())])

    def update_by_bucket(self):
        bucket, size_bytes = [], 0
        for index, weight in enumerate(self.weights):
            bucket.append(index)
            size_bytes += weight.numel() * 2
            if size_bytes >= BUCKET_BYTES or index == len(self.weights) - 1:
                flat = torch.cat([self.weights[i].view(-1) for i in bucket]).share_memory_()
                self.send((bucket, flat))
                bucket, size_bytes = [], 0


def run_trainer(rank, tensors, line, engine, rendezvous):
    trainer = Trainer(rank, tensors, engine, rendezvous)
    line.send("ready")
    while True:
        word = line.recv()
        if word == "c":
            trainer.send(("check", trainer.turn))
        else:
            {"s": trainer.step, "t": trainer.update_by_tensor,
             "b": trainer.update_by_bucket}[word]()
        line.send("done")
        if word == "c" and rank == 0:
            line.send(engine.recv())


# ---- the engine -------------------------------------------------------------------------------

class Engine:
    def __init__(self, rank, tensors):
        torch.set_num_threads(1)
        self.rank = rank
        self.tensors = tensors
        self.weights = [narrowed(torch.zeros(shape, dtype=torch.bfloat16), cut, rank).clone()
                        for _, shape, cut in tensors]

    def load(self, index, tensor):
        self.weights[index].copy_(narrowed(tensor, self.tensors[index][2], self.rank))

    def take(self, thing):
        if isinstance(thing, list):
            for index, tensor in thing:
                self.load(index, tensor)
            return
        indices, flat = thing
        begin = 0
        for index in indices:
            shape = self.tensors[index][1]
            count = torch.Size(shape).numel()
            self.load(index, flat[begin:begin + count].view(shape))
            begin += count

    def is_right(self, turn):
        return all(bool((weight == (turn * 31 + index) % 251).all())
                   for index, weight in enumerate(self.weights))


def run_engine(rank, tensors, line, next_rank):
    engine = Engine(rank, tensors)
    while True:
        gathered = line.recv()
        if next_rank is not None:
            next_rank.send(gathered)
        thing = torch.multiprocessing.reductions.ForkingPickler.loads(gathered[rank])
        right = None
        if isinstance(thing, tuple) and thing[0] == "check":
            right = engine.is_right(thing[1])
        else:
            engine.take(thing)
        del thing
        if next_rank is not None:
            others = next_rank.recv()
            right = right if right is None else right and others
        line.send(right)
        if right is not None and next_rank is not None:
            line.send(right)


# ---- the connection to the program ------------------------------------------------------------

def serve(line, trainers):
    while True:
        word = line.recv(1).decode()
        if not word:
            return
        for trainer in trainers:
            trainer.send(word)
        for trainer in trainers:
            trainer.recv()
        answer = word
        if word == "c":
            answer = "k" if trainers[0].recv() else "w"
        line.sendall(answer.encode())


def main():
    line = socket.socket(fileno=LINE_FD)
    if torch is None:
        line.sendall(b"n")
        return
    tensors = tensors_of(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    to_engine, engine_line = multiprocessing.Pipe()
    to_second, second_line = multiprocessing.Pipe()
    children = [multiprocessing.Process(target=run_engine, daemon=True, args=arguments)
                for arguments in ((0, tensors, engine_line, to_second),
                                  (1, tensors, second_line, None))]
    trainers = []
    with tempfile.TemporaryDirectory() as directory:
        for rank in range(RANKS):
            here, there = multiprocessing.Pipe()
            trainers.append(here)
            children.append(multiprocessing.Process(
                target=run_trainer, daemon=True,
                args=(rank, tensors, there, to_engine, os.path.join(directory, "meet"))))
        for child in children:
            child.start()
        for trainer in trainers:
            trainer.recv()
    line.sendall(b"r")
    serve(line, trainers)


try:
    import torch
    import torch.distributed
    import torch.multiprocessing
    import torch.multiprocessing.reductions
except ImportError:
    torch = None

if __name__ == "__main__":
    main()
