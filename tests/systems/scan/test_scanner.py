"""Files are told by what they are, and nothing in them runs."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import pickle
import random
import resource
import signal
import struct
import zipfile
import zlib
from collections import OrderedDict, defaultdict
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from cordee.systems.scan.node.formats.pickle_globals import PickleGlobals
from cordee.systems.scan.node.inspection import Inspection
from cordee.systems.scan.node.scanner import Scanner
from cordee.systems.scan.node.source import BytesSource

from . import made_files as made


def rules_of(verdict):
    return {sight.rule for sight in verdict.sights}


def test_those_that_look_can_open_nothing(scanner, look):
    look(b"")
    assert scanner.confined is True


@pytest.mark.parametrize("number", range(6))
def test_a_pickle_of_each_protocol_is_blocked(look, canary, number):
    verdict = look(made.payload_pickles(canary)[f"protocol {number}"], "picture.png")
    assert (verdict.verdict, verdict.kinds) == ("block", ("pickle",))
    assert "system" in verdict.sights[0].text


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"), ("builtins", "eval"), ("__builtin__", "execfile"), ("subprocess", "Popen"), ("runpy", "_run_code"),
        ("torch.hub", "load"), ("numpy.testing._private.utils", "runstring"), ("importlib", "import_module"), ("pip", "main"),
        ("builtins", "getattr"), ("operator", "attrgetter"), ("functools", "reduce"), ("shutil", "rmtree"), ("socket", "create_connection"),
        ("webbrowser", "open"), ("timeit", "main"), ("code", "interact"), ("ctypes", "CDLL"), ("cloudpickle.cloudpickle", "_make_function"),
        ("torch.utils.cpp_extension", "load_inline"), ("numpy", "load"), ("sklearn.datasets", "fetch_openml"), ("pickle", "loads"),
    ],
)  # fmt: skip
def test_what_runs_things_is_blocked(look, module, name):
    assert look(made.call(module, name, b"x")).verdict == "block"


def test_a_name_in_no_list_is_unknown_until_it_is_allowed(look, tmp_path):
    content = made.call("somebodys.library", "Model", b"x")
    verdict = look(content)
    assert (verdict.verdict, rules_of(verdict)) == ("unknown", {"model-pickle-name"})
    with Scanner(["somebodys.library.Model"]) as own:
        assert own.scan(str(tmp_path / "file.bin")).verdict == "clean"
    with Scanner(["somebodys.*"]) as own:
        assert own.scan(str(tmp_path / "file.bin")).verdict == "clean"
    with Scanner(["somebodys.library.Other"]) as own:
        assert own.scan(str(tmp_path / "file.bin")).verdict == "unknown"


def test_a_pickle_without_its_header_or_its_end_is_blocked(look):
    assert look(b"cos\nsystem\n(S'x'\ntR").verdict == "block"
    assert look(b"cposix\nsystem\n(S'x'\ntR.").verdict == "block"
    assert look(b"(S'x'\nios\nsystem\n.").verdict == "block"


def test_what_stands_before_a_fault_counts(look):
    verdict = look(made.call("os", "system", b"x")[:-1] + b"\xff\xff\xff")
    assert verdict.verdict == "block"
    assert "model-pickle-broken" in rules_of(verdict)


def test_a_second_pickle_behind_the_first_is_seen(look, canary):
    assert look(pickle.dumps({"a": 1}) + pickle.dumps(made.Payload(canary))).verdict == "block"


@pytest.mark.parametrize("packer", sorted(made.compressions()))
def test_packed_pickles_are_unpacked(look, canary, packer):
    content = made.compressions()[packer](pickle.dumps(made.Payload(canary)))
    assert look(content).verdict == "block"


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_entries_of_archives_are_looked_at_whatever_packs_them(look, canary, method):
    bad = pickle.dumps(made.Payload(canary))
    verdict = look(made.zipped({"a.txt": b"good", "archive/data.pkl": bad, "z": b"behind"}, method))
    assert verdict.verdict == "block"
    assert verdict.sights[0].where == "archive/data.pkl"


def test_a_bad_entry_does_not_hide_the_next(look, canary):
    bad = pickle.dumps(made.Payload(canary))
    archive = bytearray(made.zipped({"first": b"x" * 400, "second": bad}, zipfile.ZIP_DEFLATED))
    archive[30 + 5 : 30 + 9] = b"\xff\xff\xff\xff"  # the first entry cannot be unpacked
    verdict = look(bytes(archive))
    assert verdict.verdict == "block"
    assert {sight.where for sight in verdict.sights} == {"first", "second"}


def test_check_sums_and_flags_of_an_archive_do_not_matter(look, canary):
    archive = bytearray(made.zipped({"data.pkl": pickle.dumps(made.Payload(canary))}))
    archive[14:18] = b"\0\0\0\0"
    archive[6] |= 1
    at = archive.find(b"PK\x01\x02")
    archive[at + 8] |= 1
    assert look(bytes(archive)).verdict == "block"


def test_an_entry_that_the_directory_does_not_name_is_seen(look, canary):
    hidden, shown = made.zipped({"hidden": pickle.dumps(made.Payload(canary))}), made.zipped({"shown": b"good"})
    verdict = look(hidden[: hidden.find(b"PK\x01\x02")] + shown)
    assert verdict.verdict == "block"
    assert "file-hidden-entry" in rules_of(verdict)


def test_archives_one_after_the_other_hide_nothing_from_each_other(look, canary):
    good = made.zipped({"a": b"x" * (100 << 10)})
    assert look(good * 3).verdict == "clean"
    verdict = look(made.zipped({"data.pkl": pickle.dumps(made.Payload(canary))}) + good * 3)
    assert verdict.verdict == "block"
    assert "file-hidden-entry" not in rules_of(verdict)


def test_an_archive_without_its_directory_is_looked_at(look, canary):
    archive = made.zipped({"data.pkl": pickle.dumps(made.Payload(canary))})
    assert look(archive[: archive.find(b"PK\x01\x02")]).verdict == "block"


def test_an_archive_behind_something_else_is_seen(look, canary):
    archive = made.zipped({"data.pkl": pickle.dumps(made.Payload(canary))})
    for before in (b"\x89PNG\r\n\x1a\n" + b"picture" * 50, made.safetensors({"a": b"12345678"}), made.gguf(a="b")):
        assert look(before + archive).verdict == "block"


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_tar_archives_are_looked_at(look, canary, kind):
    verdict = look(made.tarred({"model/weights": pickle.dumps(made.Payload(canary))}, kind))
    assert (verdict.verdict, verdict.sights[0].where) == ("block", "model/weights")


def test_an_archive_that_leads_out_is_blocked(look):
    assert rules_of(look(made.tarred({"../../.bashrc": b"x"}))) == {"file-leads-out"}


def test_archives_in_archives_are_looked_into(look, canary):
    content = pickle.dumps(made.Payload(canary))
    for number in range(5):
        content = made.zipped({f"level{number}": content}) if number % 2 else made.tarred({f"level{number}": content})
    assert look(content).verdict == "block"


def test_a_pickle_in_the_bytes_of_another_is_looked_into(look, canary):
    inner = {"step": 3, "state": [pickle.dumps(made.Payload(canary))]}
    assert look(pickle.dumps(inner)).verdict == "block"
    assert look(pickle.dumps({"step": 3, "state": [pickle.dumps({"a": 1}), b"\x80."]})).verdict == "clean"


def test_what_takes_too_long_tells_what_was_seen(canary):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("zeros", bytes(1 << 24), zipfile.ZIP_DEFLATED)
        archive.writestr("data.pkl", pickle.dumps(made.Payload(canary)))
    inspection = Inspection(PickleGlobals(), until=0.0)
    inspection.look(BytesSource(stream.getvalue()))
    assert {sight.rule for sight in inspection.sights} == {"file-too-much", "model-pickle-call"}


def test_what_is_nested_too_deeply_or_unpacks_to_too_much_is_unknown_and_hides_nothing(look, canary):
    deep = b"x"
    for _ in range(30):
        deep = gzip.compress(made.zipped({"a": deep}))
    assert (look(deep).verdict, rules_of(look(deep))) == ("unknown", {"file-too-much"})
    stored = pickle.dumps(made.Payload(canary))
    for _ in range(30):  # whose directories all stand in the file as they are
        stored = made.zipped({"a": stored})
    assert (look(stored).verdict, rules_of(look(stored))) == ("block", {"model-pickle-call"})
    machine = zlib.compressobj(9)
    bomb = b"".join(machine.compress(bytes(1 << 20)) for _ in range(1100)) + machine.flush()
    assert look(bomb).verdict == "unknown"
    hidden = pickle.dumps(made.Payload(canary)) + bytes(len(bomb))
    found = look(made.zipped({"a": bomb, "b": hidden}))
    assert (found.verdict, rules_of(found)) == ("block", {"file-too-much", "model-pickle-call"})


def test_a_pickle_is_found_wherever_it_begins_whatever_stands_first_in_it(look, canary):
    payload = made.Payload(canary)
    firsts = [
        None,
        True,
        7,
        700,
        -70_000,
        1 << 80,
        0.5,
        "x",
        "x" * 300,
        b"y",
        b"y" * 300,
        bytearray(b"z"),
        (),
        [],
        {},
        {1},
        frozenset({1}),
        (1, 2),
    ]
    for first in firsts:
        for protocol in range(2, 6):
            data = random.Random(protocol).randbytes(5000) + pickle.dumps([first, payload], protocol)
            assert "model-pickle-call" in rules_of(look(data)), (first, protocol)


def test_ten_thousand_archives_in_one_are_counted(look, canary):
    content = {f"a{number}": made.zipped({"b": b"c"}) for number in range(10_000)}
    verdict = look(made.zipped({**content, "bad": pickle.dumps(made.Payload(canary))}))
    assert verdict.verdict in ("unknown", "block")


def test_pickles_that_want_everything_are_unknown(look):
    assert look(b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40)).verdict == "unknown"
    assert look(b"\x80\x04" + b"(" * 10_000).verdict == "unknown"
    assert look(b"\x80\x02\x82\x01.").verdict == "unknown"  # a class by its number in copyreg
    nested = b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b"."
    assert look(nested).verdict in ("clean", "unknown")


def test_numpy_objects_are_pickles(look, canary):
    import numpy as np

    def saved(array):
        out = io.BytesIO()
        np.save(out, array)
        return out.getvalue()

    assert look(saved(np.arange(5.0))).verdict == "clean"
    assert look(saved(np.array([1, None, "a"], dtype=object))).verdict == "clean"
    assert look(saved(np.array([made.Payload(canary)], dtype=object))).verdict == "block"


def test_what_people_pickle_is_clean(look):
    import numpy as np

    values = {
        "when": datetime.now(),
        "array": np.arange(6).reshape(2, 3),
        "number": np.float32(3),
        "names": OrderedDict(a=1),
        "groups": defaultdict(list, a=[1]),
        "set": {1, 2},
        "path": Path("/a"),
        "complex": 1j,
        "random": np.random.default_rng(3),
    }
    for number in range(6):
        assert look(pickle.dumps(values, number)).sights == (), number


def test_safetensors_are_what_their_header_says(look):
    assert look(made.safetensors({"a": b"1234", "b": b"56"})).verdict == "clean"
    overlapping = made.safetensors({"a": b"1234"}, b={"dtype": "U8", "shape": [3], "data_offsets": [1, 4]})
    assert look(overlapping).verdict == "unknown"
    assert (
        look(made.safetensors({"a": b"1234"}, a={"dtype": "F32", "shape": [9], "data_offsets": [0, 4]})).verdict
        == "unknown"
    )
    assert look(made.safetensors({"a": b"1234"}, behind=b"more")).verdict == "unknown"
    assert look(made.safetensors({"a": b"1234"})[:-2]).verdict == "unknown"


def test_headers_with_absurd_numbers_cannot_be_trusted(look):
    good = made.safetensors({"a": b"1234", "b": b"56"})
    assert look(struct.pack("<Q", 1 << 60) + good[8:]).verdict == "unknown"
    assert look(good.replace(b'"b":', b'"a":')).verdict == "unknown"  # a name twice: readers differ in which they take
    model = made.gguf(general__name="m")
    assert look(model[:8] + struct.pack("<Q", 1 << 60) + model[16:]).verdict == "unknown"
    assert look(b"a letter{ that is none").verdict == "clean"


@pytest.mark.parametrize("protocol", range(2, 6))
def test_pickles_that_begin_anywhere_are_found_where_they_do_harm(look, canary, protocol):
    bad, good = (
        pickle.dumps(made.Payload(canary), protocol),
        pickle.dumps({"a": [1, 2.0], "b": datetime.now()}, protocol),
    )
    sqlite, noise = b"SQLite format 3\0".ljust(4096, b"\0"), random.Random(protocol).randbytes(200_000)
    for before in (sqlite, b"PAR1\x15\0", noise, noise * 11, b"\x89HDF\r\n\x1a\n".ljust(800, b"\0")):
        for content, verdict in ((bad, "block"), (good, "clean")):
            found = look(before + content + bytes(100))
            assert found.verdict == verdict, (before[:20], found)
    for text in (b"model: %s\n", b'"data": "%s"', b"MODEL\n%s\n"):
        assert look(text % base64.b64encode(bad)).verdict == "block"
        assert look(text % base64.encodebytes(bad)).verdict == "block"
        assert look(text % base64.b64encode(good)).verdict == "clean"


@pytest.mark.parametrize("protocol", [0, 1])
def test_a_pickle_of_text_behind_a_header_is_found(look, canary, protocol):
    bad = pickle.dumps(made.Payload(canary), protocol)
    for before in (b"MODEL 1.0\n", b"# weights\n" * 100, b"MAGIC\0\1\2\3", random.Random(protocol).randbytes(64)):
        assert look(before + bad).verdict == "block", before[:20]
    for text in ("see\ncos\nx y\n", "import os\nos.getcwd\n", "how: `cos` and\nsystem\n(\n"):
        assert look(text.encode()).verdict == "clean", text


LOGGED = '{"version": 1, "formatters": {"a": {"()": "posix.system", "command": "id"}}}'
INI = "[loggers]\nkeys=root\n[handler_h]\nclass=StreamHandler\nargs=(%s,)\n"
PTH = "import\tos; open('/tmp/x', 'w').close()\n"
FLOW = '{"a": !!python/object/apply:os.system ["id"]}'
TEMPLATE = "{\"chat_template\": \"{{ lipsum[['__glob', 'als__']|join]['os'].system('id') }}\"}"
LAYER = '{"class_name": "Sequential", "config": {"layers": [{"class_name": "%s", "config": {"%s": "%s"}}]}}'


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (LOGGED, "block"),
        (LOGGED.replace("posix.system", "my.Formatter"), "clean"),
        ("formatters:\n  a:\n    (): subprocess.getoutput\n    cmd: id\n", "block"),
        ("model:\n  class_path: subprocess.Popen\n", "block"),
        ("model:\n  class_path: torch.nn.Linear\n", "clean"),
        (INI % "open('/tmp/x', 'w').close()", "block"),
        (INI % "sys.stdout", "clean"),
        (PTH, "block"),
        (FLOW, "block"),
        ("a: [1, {d: !!python/name:os.system }]\n", "block"),
        ("in prose `[x]` and !!python/name:os.system\n", "clean"),
        (TEMPLATE, "block"),
        ("{{ cycler['\\x5f\\x5finit\\x5f\\x5f'] }}", "block"),
        ("{% set row = cycler('odd', 'even') %}{{ row.next() }}", "clean"),
        (LAYER % ("TFSMLayer", "filepath", "//host/share/model"), "block"),
        (LAYER % ("StringLookup", "vocabulary", "/etc/passwd"), "block"),
        (LAYER % ("StringLookup", "vocabulary", "assets/words.txt"), "clean"),
        ('dependencies = ["torch"]\n\ndef model():\n    return 1\n', "warn"),
        ("class Mine(datasets.GeneratorBasedBuilder):\n    pass\n", "warn"),
        ("flavors:\n  python_function:\n    loader_module: mine\n", "warn"),
        ("flavors:\n  python_function:\n    loader_module: mlflow.sklearn\n", "clean"),
    ],
)
def test_what_configurations_scripts_and_templates_have_loaders_do_is_seen(look, text, verdict):
    assert look(text.encode()).verdict == verdict


@pytest.mark.parametrize(
    ("loader", "node", "verdict"),
    [
        ("OperatorFuncNode", {"__module__": "operator", "__class__": "methodcaller"}, "block"),
        ("FunctionNode", {"content": {"module_path": "os", "function": "system"}}, "block"),
        ("MethodNode", {"content": {"func": "system", "obj": {"__module__": "os", "__class__": "os"}}}, "block"),
        ("ObjectNode", {"__module__": "mine", "__class__": "Model"}, "unknown"),
        ("ObjectNode", {"__module__": "sklearn.linear_model._logistic", "__class__": "LogisticRegression"}, "clean"),
    ],
)
def test_what_a_model_of_skops_looks_up_is_judged_as_in_a_pickle(look, loader, node, verdict):
    inside = {"__loader__": "ListNode", "content": [{"__loader__": loader, **node}], "_skops_version": "0.11"}
    assert look(made.zipped({"schema.json": json.dumps(inside).encode()})).verdict == verdict


def test_packings_without_a_magic_of_their_own_are_looked_into(look, canary):
    bad, good = pickle.dumps(made.Payload(canary)), pickle.dumps({"a": 1})
    deflate = zlib.compressobj(wbits=-15)
    assert look(deflate.compress(bad) + deflate.flush()).verdict == "block"
    for inside, verdict in ((bad, "block"), (good, "clean")):
        assert look(f"ZF{hex(len(inside)):<19}".encode() + zlib.compress(inside)).verdict == verdict


def test_programs_in_archives_of_models_are_named(look):
    code = b"def __setstate__(self, s):\n    torch.save(s, '/tmp/x')\n"
    assert look(made.zipped({"m/code/__torch__/m.py": code, "m/version": b"3"})).verdict == "block"
    compiled = {"m/data/aotinductor/model/c.wrapper.so": b"\x7fELF", "m/version": b"3"}
    assert look(made.zipped(compiled)).verdict == "unknown"
    graph = b"\x08\x01\x12\x10serve\x00PrintV2*!\n\routput_stream\x12\x0f%s"
    assert look(graph % b"file:///tmp/zz").verdict == "block"


GETATTR, ZONE = b"cbuiltins\ngetattr\n", b"czoneinfo\nZoneInfo\n"
UNPICKLE = GETATTR + b"q\x00" + ZONE + b"X\x09\0\0\0_unpickle\x86R"
USES = {
    "its globals": b"h\x00" + ZONE + b"X\x08\0\0\0__init__\x86R",
    "of another": b"h\x00ccollections\nOrderedDict\nX\x09\0\0\0_unpickle\x86R",
    "given to one that calls it": b"ctorch._tensor\n_rebuild_from_type_v2\nh\x00NNN(tR",
    "in a list that is given": b"ccollections\nOrderedDict\n]h\x00a\x85R",
    "in the state of an object": b"ctorch.nn.modules.linear\nLinear\n)\x81h\x00b",
    "given to what a call returned": b"ctorch.nn.modules.linear\nLinear\n)\x81h\x00\x85R",
    "put into an object": b"ccollections\nOrderedDict\n)R(h\x00h\x00u",
    "returned": b"h\x00",
}


def test_getattr_of_the_method_that_makes_a_time_zone_is_harmless_and_no_other_use_of_it(look):
    zone = pickle.dumps({"a": datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC"))})
    assert look(zone).verdict == "clean"
    assert look(b"\x80\x02" + UNPICKLE + b"X\x03\0\0\0UTC\x88\x86R.").verdict == "clean"
    for use, code in USES.items():
        assert look(b"\x80\x02" + UNPICKLE + b"0" + code + b".").verdict == "block", use
        assert look(b"\x80\x02" + UNPICKLE + b"0" + code + b"0N.").verdict == "block" or use == "returned", use
    assert look(b"\x80\x02" + UNPICKLE).verdict == "block"


def test_an_index_of_weights_that_leads_out_of_its_folder_is_blocked(look):
    index = b'{"metadata": {}, "weight_map": {"a": "model-1.safetensors", "b": "%s"}}'
    assert look(index % b"model-2.safetensors").verdict == "clean"
    assert look(index % b"../../secret.bin").verdict == "block"


def test_safetensors_with_a_pickle_behind_are_blocked(look, canary):
    assert look(made.safetensors({"a": b"1234"}, behind=pickle.dumps(made.Payload(canary)))).verdict == "block"


def test_operators_and_files_of_onnx_are_seen(look):
    assert look(made.onnx()).verdict == "clean"
    assert look(made.onnx()).kinds == ("onnx",)
    assert look(made.onnx("Gelu", "com.somebody")).verdict == "warn"
    assert look(made.onnx("PyOp", "ai.onnx.contrib")).verdict == "block"
    assert look(made.onnx(location="weights.bin")).verdict == "clean"
    for path in ("/etc/passwd", "../../secret", "a/../../b", "file:///etc/passwd", "https://example.org/w.bin"):
        assert look(made.onnx(location=path)).verdict == "block"


def test_templates_that_leave_their_sandbox_are_blocked(look):
    good = "{% for message in messages %}{{ message['role'] + ': ' + message['content'] }}{% endfor %}{{ raise_exception('no') }}"
    bad = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    assert look(made.gguf(tokenizer__chat_template=good, general__name="m")).verdict == "clean"
    assert look(made.gguf(tokenizer__chat_template=bad)).verdict == "block"
    assert look(b'{"chat_template": "%s"}' % bad.encode()).verdict == "block"
    assert look(made.gguf(tokenizer__chat_template=good)[:80]).verdict == "unknown"


def test_layers_of_keras_with_code_are_blocked(look):
    layer = b'{"class_name": "Functional", "config": {"layers": [{"class_name": "%s", "config": {}, "module": "%s"}]}}'
    assert look(made.zipped({"config.json": layer % (b"Dense", b"keras.layers")})).verdict == "clean"
    assert look(made.zipped({"config.json": layer % (b"Lambda", b"keras.layers")})).verdict == "block"
    assert look(made.zipped({"config.json": layer % (b"run", b"subprocess")})).verdict == "block"
    assert look(b"\x89HDF\r\n\x1a\n" + bytes(100) + layer % (b"Lambda", b"")).verdict == "block"
    assert look(b"mine".ljust(512) + b"\x89HDF\r\n\x1a\n" + bytes(100) + layer % (b"Lambda", b"")).verdict == "block"


def test_remote_code_and_unsafe_loading_are_told(look):
    assert rules_of(look(b'{"auto_map": {"AutoModel": "modeling.Model"}}')) == {"model-remote-code"}
    for document in (
        b'{"custom_pipelines": {"my-task": {"impl": "my_pipeline.P", "pt": ["AutoModel"]}}}',
        b'{"_class_name": ["pipeline", "MyPipeline"], "_diffusers_version": "0.30.0"}',
        b'[{"idx": 0, "name": "0", "path": "", "type": "custom_st.Transformer"}]',
    ):
        assert rules_of(look(document)) == {"model-remote-code"}
    assert not rules_of(
        look(b'[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]')
    )
    assert not rules_of(look(b'{"_class_name": "StableDiffusionPipeline", "_diffusers_version": "0.30.0"}'))
    script = b"model = AutoModel.from_pretrained(name, trust_remote_code=True)\nx = torch.load(p, weights_only=False)\n"
    assert rules_of(look(script)) == {"model-remote-code", "model-unsafe-load"}
    assert look(b"# trust_remote_code=True\nx = torch.load(p, weights_only=True)\n").verdict == "clean"


@pytest.mark.parametrize("script", [
    "torch.load(f,\n    weights_only=False)", "kw = {'weights_only': False}", "kw = {\n  'weights_only': False}", "setattr(x, 'weights_only', False)",
    "x.weights_only = False", "python a.py --weights_only=False", "a = 1; weights_only=False",
])  # fmt: skip
def test_unsafe_loading_is_told_however_it_is_asked_for(look, script):
    assert rules_of(look(script.encode())) == {"model-unsafe-load"}


def test_a_sentence_about_unsafe_loading_is_none(look):
    for text in (b"say('here weights_only=False runs whatever it names')\n", b"# torch.load(f, weights_only=False)\n"):
        assert look(text).verdict == "clean", text


@pytest.mark.parametrize("text", [
    "handlers:\n  console:\n    (): os.system\n", "h: {(): os.system}", "h:\n  - (): os.system", "{'a': 1, '()': 'os.system'}", "h = {\n '()' : os.system}",
])  # fmt: skip
def test_a_class_of_its_own_that_logging_would_call_is_blocked(look, text):
    assert rules_of(look(text.encode())) == {"model-config-target"}


def test_python_that_calls_is_no_configuration_of_logging(look):
    for text in (
        b"def f():\n    os.close(1)\n",
        b"for x in ():\n    os.close(x)\n",
        b"a = y if x else ():\n    os.close(a)\n",
    ):
        assert look(text).verdict == "clean", text


def test_yaml_that_makes_objects_is_blocked(look):
    assert look(b"a: 1\nb: !!python/object/apply:os.system ['x']\n").verdict == "block"
    assert look(b"a: 1\nb: [1, 2]\n").verdict == "clean"


def test_checkpoints_of_torch_are_clean_and_poisoned_ones_are_blocked(look, canary, tmp_path):
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7, "rng": torch.get_rng_state()}
    for zipped in (True, False):
        for number, (value, verdict) in enumerate(
            ((state, "clean"), (model, "clean"), ({**state, "x": made.Payload(canary)}, "block"))
        ):
            out = io.BytesIO()
            torch.save(value, out, _use_new_zipfile_serialization=zipped)
            assert look(out.getvalue()).verdict == verdict, (zipped, number)
    assert look(pickle.dumps(torch.ones(3))).verdict == "clean"
    torch.jit.script(torch.nn.Linear(2, 2)).save(str(tmp_path / "script.pt"))
    assert rules_of(look((tmp_path / "script.pt").read_bytes())) == {"model-torchscript"}


def test_distributed_checkpoints_of_torch_are_clean(look, tmp_path):
    import torch
    import torch.distributed.checkpoint as dcp

    state = {"weights": {str(number): torch.randn(9000) for number in range(5)}, "step": 3, "kind": {"a": [1, "two"]}}
    dcp.save(state, checkpoint_id=tmp_path / "step-3", no_dist=True)
    files = (tmp_path / "step-3").iterdir()
    verdicts = {file.name: look(file.read_bytes(), file.name).verdict for file in files}
    assert verdicts == {"__0_0.distcp": "clean", ".metadata": "clean"}


def test_a_pickle_within_a_tensors_pickle_is_looked_at(look, canary):
    inner = pickle.dumps(made.Payload(canary))
    assert (
        look(b"\x80\x02ctorch.storage\n_load_from_bytes\n(T" + struct.pack("<I", len(inner)) + inner + b"tR.").verdict
        == "block"
    )


def test_arrays_of_joblib_are_skipped_and_what_comes_behind_is_seen(look, canary, tmp_path):
    import joblib
    import numpy as np

    data = {"a": np.ones((3, 4)), "b": np.array([1, None], dtype=object), "c": np.arange(5)}
    for compress in (0, 3):
        joblib.dump(data, tmp_path / "good", compress=compress)
        assert look((tmp_path / "good").read_bytes()).sights == ()
        joblib.dump({**data, "d": made.Payload(canary)}, tmp_path / "bad", compress=compress)
        assert look((tmp_path / "bad").read_bytes()).verdict == "block"


def test_special_files_and_missing_ones_are_unknown(scanner, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "missing"):
        verdict = scanner.scan(str(tmp_path / name))
        assert (verdict.verdict, rules_of(verdict)) == ("unknown", {"file-unreadable"})


def test_a_sparse_file_of_a_terabyte_costs_nothing(scanner, tmp_path):
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.write(b"\x93")
        file.truncate(1 << 40)
    assert scanner.scan(str(path)).verdict == "clean"


def test_who_looks_and_dies_or_takes_too_long_is_unknown_and_the_next_file_is_looked_at(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(pickle.dumps({"a": 1}))
    patience_s = [60.0]
    with Scanner(patience=lambda size: patience_s[0]) as scanner:
        assert scanner.scan(str(tmp_path / "b")).verdict == "clean"
        scanner._idle[0].process.send_signal(signal.SIGSTOP)
        patience_s[0] = 0.1
        assert rules_of(scanner.scan(str(tmp_path / "a"))) == {"file-too-much"}
    with Scanner() as scanner:
        assert scanner.scan(str(tmp_path / "a")).verdict == "clean"
        scanner._idle[0].process.kill()
        scanner._idle[0].process.wait()
        assert scanner.scan(str(tmp_path / "a")).verdict == "unknown"
        assert scanner.scan(str(tmp_path / "b")).verdict == "clean"


def test_many_files_are_looked_at_by_several(tmp_path):
    for number in range(40):
        (tmp_path / f"{number}").write_bytes(
            made.call("os", "system", b"x") if number % 10 == 3 else pickle.dumps(number)
        )
    with Scanner(processes=3) as scanner:
        verdicts = list(scanner.scan_all(str(path) for path in tmp_path.iterdir()))
    assert sorted(Path(one.path).name for one in verdicts if one.verdict == "block") == ["13", "23", "3", "33"]
    assert len(verdicts) == 40


def test_memory_of_those_that_look_is_bounded():
    with Scanner() as scanner:
        scanner.scan("/dev/null")
        scanner.scan(__file__)
        pid = scanner._idle[0].process.pid
        assert resource.prlimit(pid, resource.RLIMIT_AS)[0] == 2 << 30
        assert resource.prlimit(pid, resource.RLIMIT_FSIZE)[0] == 0


@pytest.mark.parametrize("number", [b"F1.5\r\n0", b"F 1.5 \n0", b"F1_0\n0"])
def test_numbers_that_only_the_older_machine_reads_hide_nothing(look, number):
    assert look(number + b"cposix\nsystem\n(S'x'\ntR.").verdict == "block"


@pytest.mark.parametrize(
    "text",
    [
        "%TAG !e! tag:yaml.org,2002:python/object/\n---\na: !e!apply:os.system [x]\n",
        "a: !<tag:yaml.org,2002:python/object/apply:os.system> [x]\n",
        "a: !!python%2fobject%2fapply:os.system [x]\n",
        "a: !!pyth%6fn/object/apply:os.system [x]\n",
    ],
)
def test_yaml_that_makes_objects_is_blocked_however_it_is_spelt(look, text):
    assert look(text.encode()).verdict == "block"
    assert look(text.encode("utf-16")).verdict == "block"


def test_templates_configurations_and_packages_that_run_things_are_seen(look):
    assert look(b"{{ cycler|attr('__init__') }}").verdict == "block"
    assert look(b"{% for m in messages %}{{ m['role'] }}{% endfor %}").verdict == "clean"
    assert look(b"model:\n  _target_: os.system\n  command: x\n").verdict == "block"
    assert look(b"model:\n  _target_: torch.nn.Linear\n").verdict == "clean"
    assert look(made.zipped({"a/.data/extern_modules": b"os\n", "a/my.py": b"print(1)"})).verdict == "unknown"
    assert look(made.zipped({"a/.data/serialization_id": b"1", "a/byteorder": b"little"})).verdict == "clean"
    layer = b'"class_name": "\\u004cambda"'
    assert look(b"\x89HDF\r\n\x1a\n" + bytes(50) + b"{" + layer + b"}").verdict == "block"


def test_what_joblib_packs_in_the_older_format_is_unpacked(look, canary):
    import lzma

    assert look(lzma.compress(pickle.dumps(made.Payload(canary)), format=lzma.FORMAT_ALONE)).verdict == "block"


def test_names_within_names_are_looked_at(look):
    name = b"torch.serialization.os.system"
    content = b"\x80\x04\x8c\x0ctorch._utils\x8c" + bytes([len(name)]) + name + b"\x93(\x8c\x01xtR."
    assert look(content).verdict == "block"


def test_a_checkpoint_of_torch_inside_of_a_tar_hides_nothing(look):
    import torch

    out = io.BytesIO()
    torch.save({"a": torch.ones(3)}, out)
    assert look(made.tarred({"model.pt": out.getvalue()})).sights == ()


def test_weights_that_look_like_a_text_without_an_end_take_little_memory(tmp_path):
    header = f'{{"w": {{"dtype": "U8", "shape": [{3 << 30}], "data_offsets": [0, {3 << 30}]}}}}'.ljust(0x50).encode()
    assert len(header) == 0x50  # the first byte, "P", begins a line where a pickle is looked for
    path = tmp_path / "w.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    os.truncate(path, 8 + len(header) + (3 << 30))
    with Scanner() as scanner:
        assert scanner.scan(str(path)).verdict == "clean"
        status = Path(f"/proc/{scanner._idle[0].process.pid}/status").read_text()
    assert int(status.split("VmHWM:")[1].split()[0]) < 300 << 10


def test_bytes_that_a_pickle_holds_as_text_are_looked_into(look, canary):
    inner = pickle.dumps(made.Payload(canary), protocol=2)
    held = pickle.dumps({"state": inner}, protocol=2)  # _codecs.encode makes them
    assert (look(held).verdict, rules_of(look(held))) == ("block", {"model-pickle-call"})
    loads = b"\x80\x02ctorch.storage\n_load_from_bytes\n" + pickle.dumps(inner, protocol=2)[2:-1] + b"\x85R."
    assert "model-pickle-call" in rules_of(look(loads))
    assert not canary.exists()


def test_numbers_in_front_of_a_pickle_hide_nothing(look, canary):
    front = b"L119547037146038801333356L\n.I1001\n."  # as PyTorch's older files begin, by the oldest protocol
    poisoned = pickle.dumps(made.Payload(canary), protocol=0)
    assert rules_of(look(front + poisoned)) == {"model-pickle-call"}
    assert look(front + pickle.dumps([1, 2], protocol=0)).verdict == "clean"
