#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fuzz_seeds.py FOLDER: writes small well-formed inputs for the fuzz targets, FOLDER/<target>/<name>.

They are what a fuzzer would take long to find: whole headers, proofs of the right length, values
with every field.  Text formats have theirs in tests/fuzz/corpus.
"""
import pathlib
import struct
import sys

ID = bytes(range(16))
OWN = b"\x01" * 16  # the process of reference_fuzz
CALL, REPLY, CANCEL, ITEM, CREDIT = 1, 2, 3, 4, 5
WANTS_ITEMS = 1


# ---- values ---------------------------------------------------------------------------------
def sized(kinds, body, count=None):
    count = len(body) if count is None else count
    for tag, form, limit in kinds:
        if count < limit:
            return struct.pack(">B" + form, tag, count) + body
    raise ValueError(count)


def ext(kind, body):
    return sized([(0xc7, "B", 1 << 8), (0xc8, "H", 1 << 16)], struct.pack("B", kind) + body, len(body))


def pack(value):
    """MessagePack, as far as the seeds need it."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return struct.pack("b", value) if -32 <= value < 128 else b"\xd3" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        return sized([(0xd9, "B", 1 << 8), (0xda, "H", 1 << 16)], value.encode())
    if isinstance(value, Packed):
        return value.body
    if isinstance(value, bytes):
        return sized([(0xc4, "B", 1 << 8), (0xc5, "H", 1 << 16)], value)
    if isinstance(value, dict):
        return struct.pack("B", 0x80 | len(value)) + b"".join(pack(k) + pack(v) for k, v in value.items())
    return struct.pack(">BH", 0xdc, len(value)) + b"".join(map(pack, value))


class Packed:
    def __init__(self, body):
        self.body = body


def reference(process=ID, node=ID, kind=2):
    return pack([ID, kind, process, node, "unix:/nowhere", "tcp:127.0.0.1:1", "worker/1"])


def handle(hold=None):
    return pack([ID, "name", "class", hold])


def ndarray(dtype, shape, data, padding=0):
    head = struct.pack("BBBB", 1, dtype, len(shape), padding)
    return ext(1, head + b"".join(struct.pack(">Q", n) for n in shape) + bytes(padding) + data)


def spec():
    return pack([ID, ID, "name", "space", "class", [10000, 0, [["disk", 5]]], bytes(16), 0, "", "/lib.so", "/tmp",
                 ["A=b"], False, True, pack([1, "two"]), ID, 0, bytes(16), ["zone=in(a,b)"], False, -1, 3, 4, 100,
                 True, False, False])


def bootstrap():
    return pack([bytes(32), ID, "node", "unix:/d", "/dir", "", [0, 1], Packed(spec()), 2])


# ---- frames ---------------------------------------------------------------------------------


def frame(kind, call_id, method=b"", payload=b"", **fields):
    return struct.pack("<IBBBBIIQ16siIQQQ", 0x4d445446, 0, kind, 0, len(method),
                       fields.get("flags", 0), 72 + len(method) + len(payload), call_id,
                       ID if kind == CALL else bytes(16), fields.get("status", 0), 0,
                       (1 << 64) - 1, fields.get("sequence", 0),
                       fields.get("acknowledged", 0)) + method + payload


def hello(role):
    """A hello with version 0, for which the fuzz target puts the version of its build."""
    return struct.pack("<8sBB6xQ16s16s32s64s", b"TDMRPC", role, 2, 7, ID, ID, bytes(32), b"stranger")


def seeds():
    call = frame(CALL, 2, b"m", pack([1]), sequence=1)
    stream = frame(CALL, 4, b"m", pack([]), sequence=2, flags=WANTS_ITEMS)
    reply = frame(REPLY, 1, payload=pack([1]))
    yield "conn", "calls", call + frame(CALL, 3, b"m", pack([]))
    yield "conn", "canceled", call + frame(CANCEL, 2) + frame(CANCEL, 9)
    yield "conn", "credit", stream + frame(CREDIT, 4, sequence=1) + frame(CREDIT, 4, sequence=1)
    yield "conn", "replies", reply + frame(REPLY, 2, payload=b"why", status=-3)
    yield "conn", "items", frame(ITEM, 1, payload=pack([1]), sequence=1) + frame(ITEM, 1, payload=pack([2]), sequence=3) + reply
    yield "conn", "cut", call + reply[:-3]
    for name, body in (("call", call), ("stream", stream), ("reply", reply), ("credit", frame(CREDIT, 4, sequence=1))):
        yield "frame", name, body
    yield "handshake", "to_server", b"\x01" + hello(1)
    yield "handshake", "to_server_proved", b"\x01" + hello(1) + bytes(32)
    yield "handshake", "to_client", b"\x00" + hello(2) + bytes(32)
    yield "handshake", "wrong_role", b"\x00" + hello(1) + bytes(32)
    yield "spec", "spec", b"\x00" + spec()
    yield "spec", "bootstrap", b"\x01" + bootstrap()
    for name, body in (("reference", reference()), ("driver", reference(kind=1)), ("own", reference(OWN)),
                       ("handle", handle()), ("held", handle(Packed(ext(2, reference()))))):
        yield "reference", name, b"\x00" + body
    yield "reference", "inside", b"\x01" + pack([Packed(ext(2, reference())), {"k": Packed(ext(3, handle()))}])
    yield "message", "update_member", pack([ID, 1])
    yield "message", "spec", spec()
    yield "message", "bootstrap", bootstrap()
    yield "message", "version_request", pack(["model", 1, ID, 0, 0, [ID, 1], [[ID, 1], [ID, 2]], [ID, 1], 5, 6, 0, [],
                                              0, 0, 0, False])
    update = [ID, 2, 57, 0, ID, 0, 2, 0, [[ID, 1, 2, True, 7, 8]]]
    yield "message", "stored_version_record", pack([1, 2, 57, 57, 7, 8, False, update, [[ID, 1, 1, 3]]])
    yield "message", "model_manifest", pack([[["w", 1, [2, 3]]]])
    yield "message", "rank_layout", pack([[[0, False] + [0] * 4 + [1] * 4 + [0, 0, 64]]])
    yield "message", "scheme_offer", pack([3, 2, 3, 1000, [[ID, 1], [ID, 2]], 7, b"step 5"])
    yield "message", "scheme_report", pack([[ID, 1], -3, "why"])
    yield "message", "actor_query", pack([ID, True, ID])
    yield "message", "value_export", pack([1, ID, 1 << 20, 1000])
    yield "message", "version_reply", pack([1, 2, 3, 1, True, 5, 6])
    yield "value", "all", pack([None, True, -1, 1 << 40, 1.5, "text", b"bytes", {"k": [1]}, Packed(ext(2, b"r")),
                                Packed(ext(3, b"h"))])
    yield "value", "array", pack([Packed(ndarray(1, [2], bytes(8))), Packed(ndarray(1, [0], b"", 3))])
    yield "value", "large", b"\x92\xd7\x04" + struct.pack(">Q", 3) + b"abc\xd7\x05" + \
        struct.pack(">Q", 8) + bytes([1, 1, 0, 0, 0, 0, 0, 7])
    for number, body in enumerate((b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", b"-NOSCRIPT no\r\n", b":3\r\n", b"$-1\r\n",
                                   b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\n12\r\n")):
        yield "redis_reply", str(number), body
    yield "http", "get", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    yield "http", "head", b"HEAD /x?y=z HTTP/1.0\r\n\r\n"
    yield "http", "post", b"POST / HTTP/1.1\r\nHost: [::1]:80\r\nContent-Length: 3\r\n\r\nabc"
    yield "http", "chunked", b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"


def main(folder):
    for target, name, body in seeds():
        path = pathlib.Path(folder) / target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)


if __name__ == "__main__":
    main(sys.argv[1])
