"""Pickles that were made to do harm: they call, they claim memory, they fold without end."""

import pickle
import struct

from hypothesis import strategies as st
from support.corrupted_files import damaged


def word(text):
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def number(value):
    raw = pickle.encode_long(value)
    return b"\x8a" + bytes([len(raw)]) + raw


def named(name):
    module, _, what = name.partition(" ")
    return f"c{module}\n{what}\n".encode()


def claimed(numel, shape, stride, key="0", kind="Float"):
    """The pickle of a tensor."""
    storage = b"(" + word("storage") + f"ctorch\n{kind}Storage\n".encode() + word(key) + word("cpu") + number(numel)
    sizes = [b"(" + b"".join(map(number, row)) + b"t" for row in (shape, stride)]
    hooks = b"\x89ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"tQ" + number(0) + b"".join(sizes) + hooks + b"tR"


GLOBALS = (
    *("os system", "builtins eval", "builtins bytearray", "torch UntypedStorage", "torch load", "numpy ndarray"),
    *("torch FloatStorage", "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter", "numpy dtype"),
    *("collections OrderedDict", "numpy._core.multiarray _reconstruct", "numpy.core.numeric _frombuffer"),
    "_codecs encode",
)
CLAIMS = ((6, [6], [1]), (10**12, [10**12], [1]), (6, [10**12], [0]), (-1, [-1], [1]), (10**6, [10**6], [1]))
BITS = (
    *(bytes([code]) for code in b"]})(t\x85\x86\x87Rb\x81Qsuae02N\x88"),
    *(b"K\1", b"q\0", b"h\0", b"j\0\0\0\0", b"r\xff\xff\xff\x7f", word("touch canary"), word("cpu"), b"C\3abc"),
    *(number(2**40), number(2**70), number(-1), b"B\xff\xff\xff\x7f", b"\x8e" + b"\xff" * 7 + b"\0", b"F1e999\n"),
    *(named(name) for name in GLOBALS),
    *(claimed(*one) for one in CLAIMS),
)


def pickles(whole):
    """Pickles: damaged ones, and chains of operations that no pickler writes."""
    bits = st.lists(st.sampled_from(BITS), max_size=10).map(b"".join)
    chains = bits.map(lambda some: b"\x80\2" + some + b".")
    called = st.tuples(st.sampled_from(GLOBALS).map(named), bits)
    calls = called.map(lambda two: b"\x80\2" + two[0] + b"(" + two[1] + b"tR.")
    laughs = b"\x80\2]q\0" + b"".join(b"](h" + bytes([k, 104, k]) + b"eq" + bytes([k + 1]) for k in range(60)) + b"."
    deep = st.sampled_from((laughs, b"\x80\2" + b"]" * 100_000 + b"a" * 99_999 + b".", b"\x80\2]q\0h\0a."))
    spliced = st.tuples(st.integers(2, len(whole)), st.sampled_from(BITS)).map(
        lambda two: whole[: two[0]] + two[1] + whole[two[0] :]
    )
    return damaged(whole) | chains | calls | deep | spliced
