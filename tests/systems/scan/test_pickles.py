"""What a pickle gives to functions that are known: what cannot be seen there is not clean, and what scientists save is."""

from __future__ import annotations

import functools
import io
import pickle
import re
import struct

import pytest

from . import made_files as made

LOAD, INT = b"ctorch.storage\n_load_from_bytes\n", b"cbuiltins\nint\n"
PARTIAL, ARRAY = b"cfunctools\npartial\n", b"carray\narray\n"
ENCODE, BYTES = b"c_codecs\nencode\n", b"cbuiltins\nbytes\n"


# A network that holds a table, which is empty as yet: what is put there later is called when the network is.
NETWORK = b"ctorch.nn.modules.container\nSequential\n)\x81q\x00}q\x010h\x00}X\x08\0\0\0_modulesh\x01sb0"


def text(value: str) -> bytes:
    """Return the opcode that pushes a text."""
    data = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def raw(value: bytes) -> bytes:
    """Return the opcode that pushes bytes."""
    return b"B" + struct.pack("<I", len(value)) + value


def hidden(inner: bytes) -> dict[str, bytes]:
    """Return the ways to have a known loader read a pickle that does not stand there as it is, each without its end."""
    numbers = b"(" + b"".join(b"K" + bytes([one]) for one in inner) + b"l"
    latin = text(inner.decode("latin1"))
    wide = text((inner + b"." * (len(inner) % 2)).decode("utf-16-le", "surrogatepass"))
    typed = b"cnumpy\ndtype\n" + text(f"S{len(inner)}") + b"\x85R"
    return {
        "encoded": LOAD + ENCODE + latin + text("latin1") + b"\x86R\x85R",
        "encoded by another name": LOAD + ENCODE + latin + text("L1") + b"\x86R\x85R",
        "encoded otherwise": LOAD + ENCODE + wide + text("utf-16-le") + text("surrogatepass") + b"\x87R\x85R",
        "of numbers": LOAD + BYTES + numbers + b"\x85R\x85R",
        "of numbers, to be changed": LOAD + b"cbuiltins\nbytearray\n" + numbers + b"\x85R\x85R",
        "put together": b"\x80\x05" + LOAD + b"\x96" + struct.pack("<Q", 0) + numbers[:-1] + b"e\x85R",
        "an array": LOAD + ARRAY + text("B") + numbers + b"\x86R\x85R",
        "bytes of an array": LOAD + BYTES + ARRAY + text("B") + numbers + b"\x86R\x85R\x85R",
        "of numpy": LOAD + b"cnumpy\nbytes_\n" + raw(inner) + b"\x85R\x85R",
        "a scalar of numpy": LOAD + b"cnumpy._core.multiarray\nscalar\n" + typed + raw(inner) + b"\x86R\x85R",
        "a text of bytes": LOAD + ENCODE + b"cbuiltins\nstr\n" + raw(inner) + text("latin1") + b"\x86R" + text("latin1") + b"\x86R\x85R",
        "made and filled": LOAD + b"ccopyreg\n_reconstructor\n(" + BYTES + BYTES + raw(inner) + b"tR\x85R",
        "by its name": b"\x80\x04" + LOAD + BYTES + b")}" + text("source") + raw(inner) + b"s\x92\x85R",
        "kept elsewhere": LOAD + text("0") + b"Q\x85R",
        "one call further": LOAD + raw(b"\x80\x03" + LOAD + raw(inner) + b"\x85R.") + b"\x85R",
        "in an archive": LOAD + raw(made.zipped({"a/data.pkl": inner})) + b"\x85R",
        "with another": LOAD + raw(inner) + raw(b"") + b"\x86R",
        "called by torch": b"ctorch._tensor\n_rebuild_from_type_v2\n(" + LOAD + b"ctorch\nTensor\n" + raw(inner) + b"\x85}tR",
        "called by numpy": b"cnumpy.random._pickle\n__generator_ctor\n" + raw(inner) + LOAD + b"\x86R",
        "called when a key is missing": b"ccollections\ndefaultdict\n" + LOAD + b"\x85R",
        "called in part": PARTIAL + LOAD + raw(inner) + b"\x86R)R",
        "called in part, and again": PARTIAL + PARTIAL + LOAD + b"\x85R\x85R" + raw(inner) + b"\x85R",
        "called in part by what it is filled with": PARTIAL + INT + b"\x85R(" + LOAD + raw(inner) + b"\x85}NtbR",
        "in an object": b"ctorch.nn.modules.linear\nLinear\n)\x81}" + text("hook") + b"]" + LOAD + b"asb",
        "put later into what an object has": b"\x80\x03" + NETWORK + b"h\x01" + text("0") + LOAD + b"s0h\x00" + raw(inner) + b"\x85R",
        "put later with others": b"\x80\x03" + NETWORK + b"h\x01(" + text("0") + LOAD + b"u0h\x00" + raw(inner) + b"\x85R",
        "in a class that is made": b"cabc\nABCMeta\n" + text("A") + b")}" + text("f") + LOAD + b"s\x87R",
        "behind much": b"ctorch.nn.modules.linear\nLinear\n)\x81](" + b"N" * 100_001 + b"e" + LOAD + b"\x86b",
    }  # fmt: skip


@pytest.mark.parametrize("way", hidden(b""))
def test_what_a_known_loader_is_given_is_seen_or_not_clean(look, canary, way):
    inner = pickle.dumps(made.Payload(canary), protocol=2)
    code = hidden(inner)[way]
    verdict = look((b"" if code[:1] == b"\x80" else b"\x80\x03") + code + b".")
    assert verdict.verdict in ("block", "unknown")
    assert "model-pickle-call" in {sight.rule for sight in verdict.sights}


@pytest.mark.parametrize("given", [text("x"), raw(b"no pickle"), raw(b""), b"N", b"K\x01"])
def test_a_loader_that_is_given_no_pickle_is_not_clean(look, given):
    assert look(b"\x80\x03" + LOAD + given + b"\x85R.").verdict == "unknown"


@pytest.mark.parametrize("name", ["torch.package.PackageImporter", "torch._C.PyTorchFileWriter", "Adam.step"])
def test_names_by_way_of_a_known_module_are_not_known(look, name):
    code = b"\x80\x04" + text("torch.optim.adam") + text(name) + b"\x93" + text("a") + b"\x85R."
    assert look(code).verdict in ("block", "unknown")


@pytest.mark.parametrize("described", ["in parts", "in slots"])
def test_objects_of_an_array_of_joblib_are_pickles_however_it_is_described(look, described):
    inner = (b"\x80\x02csomebodys.library\nmake\n)R." + bytes(100))[:100]
    one = b"cnumpy\ndtype\n" + text("O8") + b"\x89\x88\x87R"
    parts = b"(K\x03" + text("|") + b"N" + text("a") + b"\x85}" + text("a") + one + b"K\x00\x86sK\x64K\x01K\x3ftb"
    dtype = b"cnumpy\ndtype\n" + text("V100") + b"\x89\x88\x87R" + parts if described == "in parts" else one
    about = b"}(" + text("shape") + b"K\x01\x85" + text("dtype") + dtype + text("numpy_array_alignment_bytes") + b"Nu"
    state = about if described == "in parts" else b"N" + about + b"\x86"
    verdict = look(b"\x80\x03cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81" + state + b"b" + inner + b".")
    assert verdict.verdict == "unknown"


def test_bytes_that_hold_nothing_are_clean_however_they_are_made(look):
    inner = pickle.dumps([1, 2], protocol=2)
    for way in ("encoded", "encoded by another name", "of numbers", "put together", "one call further"):
        code = hidden(inner)[way]
        assert look((b"" if code[:1] == b"\x80" else b"\x80\x03") + code + b".").verdict == "clean", way


def test_patterns_and_calls_in_part_are_what_they_name(look, canary):
    torch = pytest.importorskip("torch")
    tokenizer = {"pattern": re.compile(r"\w+|[^\w\s]+", re.UNICODE), "merges": [("a", "b")]}
    optimizer = functools.partial(torch.optim.Adam, lr=1e-3)
    for held in (tokenizer, {"hyper_parameters": {"optimizer": optimizer}}):
        out = io.BytesIO()
        torch.save(held, out)
        assert look(pickle.dumps(held)).verdict == look(out.getvalue()).verdict == "clean"
    assert look(pickle.dumps([re.compile("a"), made.Payload(canary)])).verdict == "block"
    assert look(pickle.dumps(functools.partial(eval, "1"))).verdict == "block"
    assert look(b"\x80\x02" + PARTIAL + b"csomebodys.library\nmake\n\x85R.").verdict == "unknown"
    assert look(made.call("functools", "partial", b"os.system")).verdict == "unknown"
    assert look(b"_target_: functools.partial\n_args_: [os.system]\n").verdict == "block"


def test_what_lightning_with_hydra_saves_is_clean(look):
    node = b"comegaconf.nodes\nAnyNode\n)\x81}" + text("_val") + b"K\x01sb"
    meta = b"comegaconf.base\nContainerMetadata\n)\x81}" + text("ref_type") + b"ctyping\nAny\ns"
    meta += text("element_type") + b"c_operator\ngetitem\nctyping\nList\nc__builtin__\nint\n\x86Rs"
    held = b"}" + text("_metadata") + meta + b"bs" + text("_content") + b"}" + text("lr") + node + b"ss"
    assert look(b"\x80\x02comegaconf.dictconfig\nDictConfig\n)\x81" + held + b"b.").verdict == "clean"
    assert look(b"\x80\x02c_operator\ngetitem\n}" + text("a") + b"\x86R.").verdict == "block"
    assert look(b"\x80\x02]c_operator\ngetitem\na.").verdict == "block"


def test_the_arguments_that_the_trainer_of_hugging_face_saves_are_clean_and_calls_of_them_are_not(look, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[])
    arguments.device  # noqa: B018 - makes the state that the trainer saves with them
    torch.save(arguments, tmp_path / "training_args.bin")
    saved = (tmp_path / "training_args.bin").read_bytes()
    assert b"PartialState" in saved
    assert look(saved).verdict == "clean"
    state = b"caccelerate.state\nPartialState\n"
    assert look(b"\x80\x02" + state + b")\x81.").verdict == "clean"
    assert look(b"\x80\x02" + state + b")R.").verdict == "unknown"
    assert look(b"\x80\x02" + PARTIAL + state + b"\x85R.").verdict == "unknown"
