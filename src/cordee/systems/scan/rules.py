"""What each rule of the scanner means: for `cordee scan --explain`, and for the documentation."""

from __future__ import annotations

from cordee.systems.scan.images.rules import IMAGE_RULES
from cordee.systems.scan.packages.rules import PACKAGE_RULES
from cordee.systems.scan.rule_words import RuleWords

_TRUST = "take the file from whom you trust, best as safetensors; if the class is your own, name it in [scan] allow"
_PLACE = "take it out, have the service make a new one, and give it by a file that only you may read (mode 600) or by your login"
_FAMILIES: dict[str, RuleWords] = {
    "model-pickle-call": RuleWords(
        "A pickle looks up a function by which it can run programs, open files or reach the network while it is being loaded.",
        "Checkpoints of PyTorch, scikit-learn and many others are pickles: programs. Poisoned ones lie on public hubs and run as whoever loads them.",
        "do not load it; ask its author for safetensors, or `cordee scan --convert` takes the tensors out without running anything",
    ),
    "model-pickle-name": RuleWords(
        "A pickle looks up a name that is in no list of harmless ones.",
        "Most attacks on scanners use functions of large libraries that nobody had put on a list of bad ones. So what is not known is not trusted.",
        _TRUST,
    ),
    "model-pickle-broken": RuleWords(
        "A pickle cannot be read to its end.",
        "What a loader meets first it runs; a broken end hides what stands behind it from those who look.",
        "get the file again, and compare its check sum with the author's",
    ),
    "model-template": RuleWords(
        "A chat template leaves its sandbox: it reaches for Python's inner names.",
        "Templates are programs of Jinja, which inference servers run for every question.",
        "use the template of the original model",
    ),
    "model-safetensors-header": RuleWords(
        "The header of a safetensors file does not fit its content.",
        "Overlapping or missing parts are how a file is two things at once, or how a reader is led astray.",
        "get the file again, and compare its check sum with the author's",
    ),
    "model-gguf-header": RuleWords(
        "A GGUF file cannot be read.", "Readers in C have been attacked by such headers.", "get the file again"
    ),
    "model-onnx-header": RuleWords(
        "An ONNX file cannot be read.", "Readers in C++ have been attacked by such files.", "get the file again"
    ),
    "model-tensorflow-header": RuleWords(
        "A TensorFlow graph cannot be read.", "It may hide what it does.", "get the file again"
    ),
    "model-hdf5-header": RuleWords("An HDF5 file cannot be read.", "It may hide what it holds.", "get the file again"),
    "model-onnx-operator": RuleWords(
        "A model of ONNX has an operator that is none of ONNX.",
        "Whoever runs it has to load a library for it, or runs Python that stands in the model.",
        "export the model with the operators of ONNX, or check the library",
    ),
    "model-onnx-external": RuleWords(
        "A model of ONNX reads its tensors from outside of its folder.",
        "So it reads files of whoever loads it, which come out again in the results of a service.",
        "do not load it",
    ),
    "model-tensorflow-operation": RuleWords(
        "A graph of TensorFlow runs Python or touches files.",
        "Such operations run when the model is called.",
        "do not load it, or only where it can reach nothing",
    ),
    "model-keras-lambda": RuleWords(
        "A layer of a Keras model holds Python code.",
        "Loading it runs the code; with files of older versions `safe_mode` does not help.",
        "have the layer written as a class of its own, and load weights only",
    ),
    "model-keras-module": RuleWords(
        "A Keras model names a class or function that is none of Keras.",
        "Loading it calls that with values of the file.",
        "load weights only",
    ),
    "model-torchscript": RuleWords(
        "The file is TorchScript.",
        "It is a program: what it does is seen only when it runs.",
        "prefer weights and the model's own code",
    ),
    "model-remote-code": RuleWords(
        "Python that a model's repository brings along would be run.",
        "It is whatever the repository holds on the day that it is fetched.",
        "pin a revision that you have read (`revision=` with a commit), and keep a copy of the code",
    ),
    "model-unsafe-load": RuleWords(
        "A script loads checkpoints without protection.",
        "`weights_only=False` is mostly written because a load failed once; it lets a checkpoint run whatever it names.",
        "use `cordee.load(path)`, or name the classes by `torch.serialization.add_safe_globals`",
    ),
    "model-torch-package": RuleWords(
        "The file is a torch.package.",
        "It brings its own Python along, which loading imports.",
        "prefer weights and code that you have read",
    ),
    "model-config-target": RuleWords(
        "A configuration names a function that runs programs or code.",
        "Hydra and its like call whatever `_target_` names.",
        "do not use it",
    ),
    "model-yaml-object": RuleWords(
        "YAML that makes Python objects.",
        "`yaml.load` without a safe loader runs what it names.",
        "write plain YAML, and read it by `yaml.safe_load`",
    ),
    "file-too-much": RuleWords(
        "The file could not be looked at as a whole.",
        "Archives within archives, or a few bytes that unpack to very many, are made to tire whoever looks.",
        "unpack it where that can do no harm, and scan the parts",
    ),
    "file-packed": RuleWords(
        "Something is packed in a way that cannot be looked into.",
        "So nobody can say what it is.",
        "unpack it, and scan what comes out",
    ),
    "file-hidden-entry": RuleWords(
        "An archive holds an entry that its directory does not name.",
        "Some readers take the directory, others the entries: so they see different files.",
        "get the file again, and compare its check sum with the author's",
    ),
    "file-polyglot": RuleWords(
        "A file is two things at once.",
        "What a scanner takes for one may be the other for its loader.",
        "get the file again from its author",
    ),
    "file-broken": RuleWords(
        "A file cannot be read to its end.", "It may hide what stands there.", "get the file again"
    ),
    "file-leads-out": RuleWords(
        "An archive would write outside of the folder that it is unpacked in, or an index has weights read from there.",
        "So it replaces a file of yours, such as a login script.",
        "do not unpack it",
    ),
    "file-unreadable": RuleWords("A file cannot be read.", "Nobody can say what it is.", "look at its rights"),
    "file-scanner-died": RuleWords(
        "The process that looked at the file has died of it.",
        "Such files are made to attack whoever reads them.",
        "do not load it",
    ),
    "model-pth-code": RuleWords(
        "A file for site-packages (`.pth`) runs code.",
        "Python runs such lines at every start, in every program of the environment; stolen packages have hidden there.",
        "do not install it",
    ),
    "model-xml-entity": RuleWords(
        "XML, such as PMML, names another file or address as a part of itself.",
        "Parsers that follow it read files of whoever loads it, or tell an address that it was loaded.",
        "load it by a parser that follows no entities (defusedxml), or do not load it",
    ),
    "secret-assigned": RuleWords(
        "A value is called a password, a token or a key, and looks like one.",
        "Whoever can read the file can use it.",
        _PLACE,
    ),
}
_SERVICES = {
    "wandb": "Weights & Biases",
    "hugging-face": "Hugging Face",
    "aws": "AWS",
    "aws-secret": "AWS",
    "github": "GitHub",
    "gitlab": "GitLab",
    "openai": "OpenAI, or a service with keys of its form",
    "google": "Google",
    "slack": "Slack",
    "pypi": "a Python package index",
    "private-key": "SSH, TLS, PGP or age",
    "azure": "Azure",
    "anthropic": "Anthropic",
    "npm": "npm",
    "nvidia": "NVIDIA's NGC",
    "groq": "Groq",
    "replicate": "Replicate",
    "databricks": "Databricks",
    "docker": "Docker Hub",
    "vault": "HashiCorp Vault",
    "stripe": "Stripe",
    "sendgrid": "SendGrid",
    "jwt": "a service that signs its tokens (JWT)",
    "password-in-url": "an address, as `https://user:password@host`",
}
RULES: dict[str, RuleWords] = {
    **_FAMILIES,
    **PACKAGE_RULES,
    **IMAGE_RULES,
    **{
        f"secret-{kind}": RuleWords(
            f"A key of {service} stands in a file.",
            "Keys in job scripts, notebooks and repositories are found by programs that search for them within minutes.",
            _PLACE,
        )
        for kind, service in _SERVICES.items()
    },
}
