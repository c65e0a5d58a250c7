"""What pickles may name, and what is known to do harm. Names that stand in neither list are unknown, never harmless."""

from __future__ import annotations

import re
from typing import Iterable

# What these modules give runs programs, opens files or connections, or makes other calls out of names.
HARMFUL_MODULES = frozenset(
    [
        "os",
        "posix",
        "nt",
        "posixpath",
        "ntpath",
        "subprocess",
        "sys",
        "_posixsubprocess",
        "pty",
        "commands",
        "popen2",
        "socket",
        "_socket",
        "ssl",
        "select",
        "selectors",
        "asyncio",
        "shutil",
        "tempfile",
        "pathlib",
        "glob",
        "fileinput",
        "io",
        "_io",
        "importlib",
        "imp",
        "pkgutil",
        "runpy",
        "zipimport",
        "site",
        "code",
        "codeop",
        "bdb",
        "pdb",
        "cProfile",
        "profile",
        "trace",
        "timeit",
        "doctest",
        "unittest",
        "ctypes",
        "_ctypes",
        "cffi",
        "mmap",
        "signal",
        "_signal",
        "multiprocessing",
        "threading",
        "_thread",
        "concurrent",
        "sched",
        "webbrowser",
        "http",
        "urllib",
        "urllib2",
        "urllib3",
        "requests",
        "httpx",
        "aiohttp",
        "ftplib",
        "smtplib",
        "telnetlib",
        "xmlrpc",
        "poplib",
        "imaplib",
        "nntplib",
        "socketserver",
        "pickle",
        "_pickle",
        "cPickle",
        "dill",
        "cloudpickle",
        "marshal",
        "shelve",
        "dbm",
        "sqlite3",
        "types",
        "inspect",
        "dis",
        "operator",
        "_operator",
        "functools",
        "_functools",
        "itertools",
        "pip",
        "setuptools",
        "distutils",
        "ensurepip",
        "venv",
        "pydoc",
        "logging",
        "atexit",
        "gc",
        "weakref",
        "builtins",
        "__builtin__",
        "__builtins__",
        "joblib",
        "yaml",
        "jinja2",
        "platform",
        "getpass",
        "winreg",
        "msvcrt",
        "_winapi",
        "linecache",
        "tokenize",
        "ast",
        "symtable",
        "py_compile",
        "compileall",
        "idlelib",
        "lib2to3",
        "turtledemo",
        "test",
        "numexpr",
        "sympy",
        "IPython",
        "_osx_support",
        "codecs",
        "tarfile",
        "zipfile",
        "dataclasses",
        "uuid",
        "h5py",
        "pexpect",
        "paramiko",
        "fabric",
        "invoke",
        "psutil",
        "sh",
        "plumbum",
    ]
)
_HARMFUL = re.compile(
    r"(?:torch\.(?:hub|_inductor|_dynamo|utils\.(?:cpp_extension|collect_env|bottleneck|data)|distributed|jit|package|serialization|fx|_C)"
    r"|torch\.utils\._(?:config_module|content_store)|torch\.(?:load|save|jit\.load)"
    r"|numpy\.(?:testing|distutils|f2py|lib|load|save|loadtxt|fromfile|memmap|DataSource|ctypeslib)"
    r"|numpy\.(?:core|_core)\.(?:_internal|records\.fromfile|memmap)|pandas\.(?:io|eval|read_\w+|core\.computation)"
    r"|sklearn\.(?:datasets|externals|utils\._testing)|tensorflow|keras|transformers\.(?:pipeline|utils\.hub)|scipy\.(?:io|weave|LowLevelCallable)"
    r"|joblib\.(?!numpy_pickle\.NumpyArrayWrapper\Z))(?:\.|\Z)"
)

_TYPES = "set frozenset list dict tuple bytes bytearray int float bool str complex slice range xrange object"
_HARMLESS = {
    "collections": "OrderedDict defaultdict Counter deque",
    "copyreg": "_reconstructor",
    "copy_reg": "_reconstructor",
    "_codecs": "encode",
    "datetime": "datetime date time timedelta timezone",
    "re": "_compile RegexFlag",
    "typing": "Any Callable Dict FrozenSet Iterable List Literal Mapping Optional Sequence Set Tuple Type Union",
    "zoneinfo": "ZoneInfo",
    "pytz": "_p _UTC",
    "dateutil.tz.tz": "tzutc tzlocal tzoffset tzfile",
    "decimal": "Decimal",
    "fractions": "Fraction",
    "uuid": "UUID",
    "array": "array _array_reconstructor",
    "pathlib": "Path PosixPath PurePath PurePosixPath WindowsPath PureWindowsPath",
    "pathlib._local": "Path PosixPath PurePath PurePosixPath WindowsPath PureWindowsPath",
    "argparse": "Namespace",
    "types": "SimpleNamespace",
    "random": "Random",
    "builtins": _TYPES,
    "__builtin__": _TYPES + " long unicode",
    "numpy": "ndarray dtype bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 float128 complex64 complex128"
    " longdouble str_ bytes_ datetime64 timedelta64 void matrix",
    "numpy.dtypes": "BoolDType Float16DType Float32DType Float64DType Int8DType Int16DType Int32DType Int64DType UInt8DType UInt16DType"
    " UInt32DType UInt64DType",
    "numpy.ma": "MaskedArray",
    "numpy.ma.core": "MaskedArray _mareconstruct",
    "torch.utils.data.dataset": "TensorDataset ConcatDataset Subset",
    "torch.nn.functional": "relu gelu silu elu selu leaky_relu tanh sigmoid softmax log_softmax mish hardswish relu6 softplus",
    "torch._C._nn": "gelu",
    "pandas": "Int8Dtype Int16Dtype Int32Dtype Int64Dtype UInt8Dtype UInt16Dtype UInt32Dtype UInt64Dtype Float32Dtype Float64Dtype"
    " BooleanDtype IntervalDtype PeriodDtype SparseDtype DataFrame Series Categorical CategoricalDtype StringDtype DatetimeTZDtype Index RangeIndex MultiIndex DatetimeIndex TimedeltaIndex"
    " PeriodIndex CategoricalIndex Timestamp Timedelta Interval IntervalIndex NA NaT",
    "pandas._libs.missing": "NAType",
    "pandas._libs.sparse": "IntIndex BlockIndex",
    "pyarrow.lib": "_restore_array type_for_alias py_buffer",
    "numpy.random._pickle": "__randomstate_ctor __generator_ctor __bit_generator_ctor",
    "numpy.random._mt19937": "MT19937",
    "numpy.random._pcg64": "PCG64 PCG64DXSM",
    "numpy.random._philox": "Philox",
    "numpy.random._sfc64": "SFC64",
    "numpy.random.mtrand": "RandomState",
    "numpy.random._generator": "Generator",
    "numpy.random.bit_generator": "SeedSequence __pyx_unpickle_SeedSequence",
    "torch": "Size Tensor device dtype layout memory_format strided channels_last contiguous_format preserve_format per_tensor_affine"
    " per_channel_affine Generator FloatStorage DoubleStorage HalfStorage BFloat16Storage LongStorage IntStorage ShortStorage CharStorage"
    " ByteStorage BoolStorage ComplexFloatStorage ComplexDoubleStorage UntypedStorage QInt8Storage QUInt8Storage QInt32Storage"
    " float16 float32 float64 bfloat16 half float double int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool short int long"
    " complex32 complex64 complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz quint8 qint8 qint32",
    "torch._utils": "_rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3 _rebuild_parameter _rebuild_parameter_with_state"
    " _rebuild_qtensor _rebuild_sparse_tensor _rebuild_sparse_csr_tensor _rebuild_meta_tensor_no_storage _rebuild_nested_tensor"
    " _rebuild_wrapper_subclass _rebuild_device_tensor_from_numpy",
    "torch._tensor": "_rebuild_from_type_v2 Tensor",
    "torch.nn.parameter": "Parameter Buffer UninitializedParameter",
    "torch.storage": "TypedStorage UntypedStorage",
    "torch.serialization": "_get_layout",
    "torch.autograd.grad_mode": "no_grad",
    "torch.distributed.checkpoint.filesystem": "_StorageInfo",
    "torch.distributed.checkpoint.metadata": "BytesStorageMetadata ChunkStorageMetadata Metadata MetadataIndex StorageMeta"
    " TensorProperties TensorStorageMetadata _MEM_FORMAT_ENCODING",
    "torch.jit._pickle": "build_intlist build_tensorlist build_doublelist build_boollist build_tensor_from_id restore_type_tag",
    "joblib.numpy_pickle": "NumpyArrayWrapper",
    "omegaconf.dictconfig": "DictConfig",
    "omegaconf.listconfig": "ListConfig",
    "omegaconf.base": "ContainerMetadata Metadata UnionNode",
    "omegaconf.nodes": "AnyNode BooleanNode BytesNode EnumNode FloatNode IntegerNode InterpolationResultNode PathNode StringNode",
    "accelerate.state": "PartialState AcceleratorState GradientState",
    "accelerate.utils.dataclasses": "AutocastKwargs ComputeEnvironment CustomDtype DDPCommunicationHookType DataLoaderConfiguration"
    " DeepSpeedPlugin DistributedDataParallelKwargs DistributedType DynamoBackend FP8BackendType FullyShardedDataParallelPlugin"
    " GradScalerKwargs GradientAccumulationPlugin InitProcessGroupKwargs LoggerType MegatronLMPlugin PrecisionType ProfileKwargs"
    " ProjectConfiguration RNGType SageMakerDistributedType TorchDynamoPlugin TorchTensorParallelPlugin",
    "lightning.fabric.utilities.data": "AttributeDict",
    "lightning_fabric.utilities.data": "AttributeDict",
    "pytorch_lightning.utilities.parsing": "AttributeDict",
    "xgboost.core": "Booster",
    "lightgbm.basic": "Booster",
    "pandas._libs.internals": "_unpickle_block",
    "pandas._libs.interval": "__pyx_unpickle_IntervalMixin",
    "pandas._libs.arrays": "__pyx_unpickle_NDArrayBacked",
    "pandas._libs.tslibs.timestamps": "_unpickle_timestamp",
    "pandas._libs.tslibs.timedeltas": "_timedelta_unpickle",
    "pandas._libs.tslibs.offsets": "Day Hour Minute Second MonthEnd MonthBegin BusinessDay",
    "pandas.core.frame": "DataFrame",
    "pandas.core.series": "Series",
    "pandas.core.internals.managers": "BlockManager SingleBlockManager",
    "pandas.core.internals.blocks": "new_block",
    "pandas.core.indexes.base": "_new_Index Index",
    "pandas.core.indexes.range": "RangeIndex",
    "pandas.core.indexes.multi": "MultiIndex",
    "pandas.core.indexes.datetimes": "DatetimeIndex _new_DatetimeIndex",
    "pandas.core.indexes.category": "CategoricalIndex",
    "pandas.core.arrays.categorical": "Categorical",
    "pandas.core.arrays.string_": "StringArray StringDtype",
    "pandas.core.arrays.datetimes": "DatetimeArray",
    "pandas.core.dtypes.dtypes": "CategoricalDtype DatetimeTZDtype",
}
_FAMILIES = (
    re.compile(r"numpy\.(?:_core|core)\.multiarray\.(?:_reconstruct|scalar)\Z"),
    re.compile(r"numpy\.(?:_core|core)\.numeric\._frombuffer\Z"),
    re.compile(
        r"numpy\.(?:log|log1p|log2|log10|exp|expm1|sqrt|square|abs|absolute|sign|sin|cos|tan|tanh|negative|reciprocal|cbrt|power|add|multiply)\Z"
    ),
    re.compile(
        r"numpy\.polynomial\.(?:\w+\.)?(?:Polynomial|Chebyshev|Legendre|Hermite|HermiteE|Laguerre)\Z|numpy\.(?:lib\._polynomial_impl\.)?poly1d\Z"
    ),
    re.compile(
        r"scipy\.interpolate\._\w+\.(?:interp1d(?:\._call_\w+)?|[A-Z]\w+)\Z|scipy\.spatial\._\w+\.(?:c?KDTree|ConvexHull|Delaunay|Rotation)\Z"
    ),
    re.compile(r"sklearn\.feature_selection\._univariate_selection\.(?:f_classif|f_regression|chi2|r_regression)\Z"),
    re.compile(r"sklearn\.feature_selection\._mutual_info\.mutual_info_\w+\Z"),
    re.compile(r"pandas\.arrays\.[A-Z]\w+Array\Z"),
    re.compile(
        r"torch\.(?:nn\.modules|optim|nn\.utils\.(?:parametrize|weight_norm)|nn\.parallel)(?:\.[a-z_0-9]+)*\.[A-Z]\w*\Z"
    ),
    re.compile(
        r"sklearn\.(?:linear_model|ensemble|tree|svm|neighbors|naive_bayes|cluster|decomposition|preprocessing|pipeline|compose|impute"
        r"|feature_extraction|feature_selection|model_selection|neural_network|gaussian_process|discriminant_analysis|multiclass|multioutput"
        r"|calibration|isotonic|mixture|manifold|dummy|kernel_approximation|kernel_ridge|cross_decomposition|covariance|random_projection"
        r"|semi_supervised|_loss|metrics|utils\._bunch|utils\._metadata_requests|utils\._repr_html)(?:\.[a-z_0-9]+)*\.(?:_?[A-Z]\w*|__pyx_unpickle_\w+)\Z"
    ),
    re.compile(r"sklearn\.tree\._tree\.Tree\Z|sklearn\.neighbors\._(?:kd|ball)_tree\.(?:newObj|\w+Tree\w*)\Z"),
    re.compile(r"sklearn\.(?:_loss|linear_model|neighbors|metrics)(?:\.[a-z_0-9]+)*\.(?:__pyx_unpickle_\w+|newObj)\Z"),
    re.compile(r"scipy\.sparse(?:\._?[a-z0-9]+)?\.(?:csr|csc|coo|bsr|dia|dok|lil)_(?:matrix|array)\Z"),
    re.compile(r"(?:xgboost\.sklearn\.XGB\w+|lightgbm\.sklearn\.LGBM\w+|catboost\.core\.CatBoost\w*)\Z"),
    re.compile(
        r"transformers\.(?:training_args(?:_seq2seq)?\.(?:(?:Seq2Seq)?TrainingArguments|OptimizerNames|ParallelMode)|debug_utils\.DebugOption"
        r"|trainer_utils\.(?:\w+Strategy|HubStrategy|SchedulerType|FSDPOption)|generation\.configuration_utils\.GenerationConfig"
        r"|trainer_pt_utils\.AcceleratorConfig|configuration_utils\.\w+Config|models\.[a-z_0-9]+\.configuration_[a-z_0-9]+\.\w+Config)\Z"
    ),
)
# Known in a pickle alone, where what they are given is looked at as well: a call that reads a pickle from bytes, and one that calls another.
NESTED_LOADERS = frozenset({"torch.storage._load_from_bytes"})
PARTIAL = "functools.partial"
# Harmless where a pickle makes one of them and fills it; called, they read files or variables, or open connections.
ONLY_MADE = frozenset(
    [
        "transformers.training_args.TrainingArguments",
        "transformers.training_args_seq2seq.Seq2SeqTrainingArguments",
        *(f"accelerate.state.{name}" for name in ("PartialState", "AcceleratorState", "GradientState")),
        *(
            f"accelerate.utils.dataclasses.{name}"
            for name in (
                "DeepSpeedPlugin",
                "FullyShardedDataParallelPlugin",
                "MegatronLMPlugin",
                "TorchDynamoPlugin",
                "TorchTensorParallelPlugin",
            )
        ),
    ]
)
_WORDS = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\Z")


class PickleGlobals:
    """The lists, with what a site or a job adds to them.

    Args:
        allowed: names `module.name`, or `module.*` for all of a module, that are known to be harmless.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        own = set(allowed)
        self._own = {name for name in own if not name.endswith(".*")}
        self._modules = tuple(name[:-1] for name in own if name.endswith(".*"))

    def severity(self, module: str, name: str) -> str:
        """Return what it means that something is named, to be called with whatever: `clean`, `unknown` or `block`."""
        full = f"{module}.{name}"
        if name in _HARMLESS.get(module, "").split() or full in self._own:
            return "clean"
        if set(name.split(".")) & HARMFUL_MODULES:  # protocol 4 looks up names within names
            return "block"
        # What a name within names leads to is known of none: a module's names are also the modules that it imports.
        if ("." not in name and any(family.match(full) for family in _FAMILIES)) or full.startswith(self._modules):
            return "clean"
        if module.partition(".")[0] in HARMFUL_MODULES or _HARMFUL.match(full):
            return "block"
        return "unknown"

    def in_pickle(self, module: str, name: str) -> str:
        """Return what it means that a pickle names something, where `pickle_machine` looks at what that is given."""
        full = f"{module}.{name}"
        return "clean" if full == PARTIAL or full in NESTED_LOADERS else self.severity(module, name)


def is_name(module: str, name: str) -> bool:
    """Return whether Python could have such a module with such a name."""
    return bool(_WORDS.match(module) and _WORDS.match(name))
