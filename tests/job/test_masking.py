"""What is called a secret is not shown, and what is none is."""

from __future__ import annotations

import shlex

import pytest

from cordee.core.secrets import masked_document, masked_text, masked_values, masked_words

SECRET = "hunter2-Zx9"
HIDDEN = (
    f"export HF_TOKEN={SECRET}", f'export WANDB_API_KEY="{SECRET}"', f"curl -H 'Authorization: Bearer {SECRET}' x",
    f"python train.py --token {SECRET}", f"python train.py --api-key={SECRET} --lr 1", f"git clone https://me:{SECRET}@host/x",
    f"AWS_SECRET_ACCESS_KEY={SECRET} aws s3 ls", f"mysql --password='{SECRET}'", f'{{"password":"{SECRET}"}}',
    f"--export=ALL,MY_PASSWD={SECRET}", f"postgres://u:{SECRET}@h/db",
)  # fmt: skip
SHOWN = (
    "python train.py --max-tokens 2048 --tokenizer gpt2", "tokens_per_s=1200", "export HF_TOKEN=$(cat ~/.token)",
    'export HF_TOKEN="$TOKEN"', "train --lr {lr} --token-file", "ssh://host:22/path", "https://host/a:b@c", "module load keyring",
    "#SBATCH --time=10:00", "python train.py --token --lr 1", "keyboard=de",
)  # fmt: skip


@pytest.mark.parametrize("text", HIDDEN)
def test_a_secret_is_hidden(text: str) -> None:
    assert SECRET not in masked_text(text)
    assert "***" in masked_text(text)
    assert SECRET not in " ".join(masked_words(shlex.split(text)))


@pytest.mark.parametrize("text", SHOWN)
def test_what_is_none_is_shown_as_it_is(text: str) -> None:
    assert masked_text(text) == text
    assert masked_words(text.split()) == text.split()


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("OMP_NUM_THREADS", "4", True),
        ("NCCL_DEBUG", "WARN", True),
        ("NCCL_SOCKET_IFNAME", "eth0,^lo", True),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", True),
        ("EPOCHS", "12", True),
        ("RATE", "0.001", True),
        ("WANDB_DISABLED", "true", True),
        ("TOKENIZERS_PARALLELISM", "false", True),
        ("NVIDIA_API_KEY", "x", False),
        ("CUDA_AUTH", "1", False),
        ("DB_PASS", "1234", False),
        ("PIN", "123456", False),
        ("TF_VAR_db", "tiger", False),
        ("PYTHON_SECRET", "4", False),
        ("USER_NAME", "scott", False),
        ("PYTHONUNBUFFERED", "1", True),
        ("PYTHONSECRET", "geheimes", False),
        ("MYPIN", "1234", False),
        ("PASSCODE", "98765", False),
        ("UNLOCK", "4711", False),
        ("OMPI_MCA_x", "0123456789abcdef0123456789abcdef01234567", False),
    ],
)
def test_values_that_can_be_no_secret_are_shown(name: str, value: str, shown: bool) -> None:
    assert masked_values({name: value}) == {name: value if shown else "***"}


def test_values_of_variables_are_hidden_wherever_they_stand_in_a_document() -> None:
    document = {
        "steps": [{"env": {"A": "word", "DATA": "/data"}, "argv": ["x", "--token", SECRET]}],
        "n": 3,
        "env": None,
    }
    assert masked_document(document, {"DATA": "/data"}) == {
        "steps": [{"env": {"A": "***", "DATA": "/data"}, "argv": ["x", "--token", "***"]}], "n": 3, "env": None,
    }  # fmt: skip
