"""Keys are known by their form or by their name, and are shown nowhere; what only looks like one stays."""

from __future__ import annotations

import subprocess
import time

import pytest

from cordee.core.secret_forms import all_keys_in, keys_in, named_keys_in
from cordee.core.secrets import OutputMask, masked_output, masked_text, masked_words, secret_values

BODY = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5hJ7kL9nP1qR3tV5xY7zA9cD1fG3hJ5kL7nP9rS1uV3xY5"
WANDB = "a3f90b1c2d4e5f60718293a4b5c6d7e8f9012345"
KEYS = {
    "wandb": f"export WANDB_API_KEY={WANDB}",
    "hugging-face": f"login('hf_{BODY[:34]}')",
    "aws": "id = AKIAQ3EGRT5UZH7KWXYM",
    "aws-secret": f"aws_secret_access_key = {BODY[:40]}",
    "azure": f"AccountKey={BODY[:84]}aa==;EndpointSuffix=core",
    "github": f"git clone https://ghp_{BODY[:36]}@github.com/a/b",
    "anthropic": f"ANTHROPIC_API_KEY=sk-ant-api03-{BODY[:60]}",
    "openai": f"openai.api_key = 'sk-proj-{BODY[:50]}'",
    "slack": "https://hooks.slack.com/services/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",
    "npm": f"//registry/:_authToken=npm_{BODY[:36]}",
    "nvidia": f"NGC: nvapi-{BODY[:64]}",
    "databricks": "dapi0a1b2c3d4e5f60718293a4b5c6d7e8f9",
    "vault": f"hvs.{BODY[:30]}",
    "jwt": f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.{BODY[:43]}",
    "password-in-url": "mysql://app:aQ7z2@h/runs --extra-index-url https://ci:Tr0ub4dor3@pypi.lab.org/simple",
}
PEM = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B\n\n{0}\n{0}\nabc=\n-----END RSA PRIVATE KEY-----\n".format(
    BODY[:64]
)
HARMLESS = (
    "pad_token=<pad> eos_token_id: 128009, tokens: 4096, key=value, loss 0.123 lr 1e-4",
    "export WANDB_API_KEY=$KEY; hf_hub_download(repo_id); sk-learn-pipeline-model-version-1",
    "https://user:password@example.org/ ftp://user:${PASS}@host {user}:{password}@host http://a:8080/x@y",
    "commit a3f90b1c2d4e5f60718293a4b5c6d7e8f9012345 sha256:0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9",
    '{"auth": "oauth2-client-credentials"}, name: MODEL_KEY\n  value: models/llama-3-8b-instruct-hf',
    "mkdir models--acme--llama-3-8b-instruct && token_path=/scratch/project_465000123/tokens",
    "docker://ubuntu:22.04@sha256:0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9 bearer of bad news-for-everybody",
    "tokenizer_class=PreTrainedTokenizerFast secret_key_name: models/llama-3-8b-instruct-hf",
)


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_is_known_by_its_form_and_masked(kind):
    text = KEYS[kind]
    found = [key for key in keys_in(text) if key.kind == kind]
    assert found
    key = text[found[0].begin : found[0].end]
    for masked in (masked_output(f"+ {text} # trace"), masked_text(text)):
        assert key not in masked
        assert "***" in masked


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_key_stays(text):
    assert masked_output(text) == text
    assert OutputMask().line(text.encode()) == text.encode()


def test_what_is_called_a_key_and_looks_random_is_masked():
    text = f"COMET_API_KEY={BODY[:25]} and {KEYS['aws']}, a b"
    assert masked_output(text) == "COMET_API_KEY=*** and id = ***, a b"
    assert [key.kind for key in named_keys_in(text)] == ["assigned"]


@pytest.mark.parametrize(
    "before",
    [
        "- name: WANDB_API_KEY\n  value: ",
        '{"name":"WANDB_API_KEY","value":"',
        "curl -H 'Authorization: Bearer ",
        '{"auths": {"registry.example.org": {"auth": "',
        '{\\"auth\\": \\"',
    ],
)
def test_a_value_is_called_a_key_by_headers_logins_and_lists_of_variables(before):
    text = f"{before}{BODY[:40]}"
    assert [text[key.begin : key.end] for key in named_keys_in(text)] == [BODY[:40]]
    assert masked_output(text) == f"{before}***"


@pytest.mark.parametrize("before", ["\x1b[31m", "\x1b[1;31m", "model_", "x", "9"])
@pytest.mark.parametrize("after", ["\x1b[0m", "_end", "'", ""])
def test_colours_and_letters_around_a_form_that_no_word_has_do_not_hide_it(before, after):
    key = f"hf_{BODY[:34]}"
    assert masked_output(f"{before}{key}{after}") == f"{before}***{after}"


@pytest.mark.parametrize("before", ["> Authorization: Bearer ", "{'Authorization': 'Bearer ", "authorization=token "])
def test_what_a_header_bears_is_masked_where_it_is_printed(before):
    token = f"{BODY[:14]}.{BODY[20:30]}/+="
    assert token not in masked_output(f"401 for {before}{token}'")


def test_examples_that_services_publish_are_no_keys_by_their_form_or_their_name():
    for example in ("AKIAIOSFODNN7EXAMPLE", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"):
        assert all_keys_in(f"export AWS_ACCESS_KEY_ID={example}\nx = '{example}'\n") == []
        assert example not in masked_text(f"python train.py {example}")
    assert [key.kind for key in all_keys_in("export AWS_ACCESS_KEY_ID=AKIAQX5ZT3VN7MWB2L4K")] == ["aws"]


def test_a_key_of_several_lines_is_masked_line_by_line_for_each_stream():
    mask = OutputMask()
    shown = [mask.line(line.encode(), 0) + mask.line(b"loss 1", 1) for line in ("a " + PEM + "b").splitlines()]
    assert shown[0] == b"a ***loss 1"
    assert shown[-1] == b"bloss 1"
    assert not any(BODY[:20].encode() in line or b"0A1B" in line for line in shown)
    assert next(keys_in(PEM)).end == len(PEM) - 1
    assert OutputMask().line(b"-----BEGIN PRIVATE KEY-----") == b"***"


def test_a_key_without_its_end_hides_no_more_than_what_looks_like_it():
    mask = OutputMask()
    assert mask.line(b"-----BEGIN PRIVATE KEY-----") == b"***"
    assert mask.line(b"step 1: loss 0.3") == b"step 1: loss 0.3"


def test_what_one_rank_was_given_is_masked_where_that_rank_prints_it():
    mask = OutputMask({"of-all-of-them"}, {0: {"pässwort"}, 1: set()}.__getitem__)
    assert [mask.line("pässwort of-all-of-them".encode(), None, rank).decode() for rank in (0, 1)] == [
        "*** ***",
        "pässwort ***",
    ]


def test_bytes_that_are_no_text_stay():
    assert OutputMask().line(b"\xff\xfe\x00 loss") == b"\xff\xfe\x00 loss"


@pytest.mark.parametrize(
    "text",
    [
        "a." * 100_000,
        "-----BEGIN PRIVATE KEY" * 20_000,
        "token_" * 100_000 + "=",
        "eyJ" * 100_000,
        "a:" * 50_000 + "://",
    ],
)
def test_no_text_takes_long(text):
    began = time.process_time()
    masked_output(text)
    masked_text(text)
    assert time.process_time() - began < 20


def test_a_real_ssh_key_is_one(tmp_path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "id")], check=True)
    text = (tmp_path / "id").read_text()
    assert masked_output(f"x {text} y") == "x ***\n y"


@pytest.mark.parametrize(
    ("env", "argv", "known"),
    [
        ({"HF_TOKEN": "not-a-known-form", "TOKENIZERS_PARALLELISM": "forbidden"}, (), {"not-a-known-form"}),
        (
            {},
            ("x", "--password", "correct-horse", "--api-key=battery-staple", "--pad-token", "<padding>"),
            {"correct-horse", "battery-staple"},
        ),
        ({"API_KEY": "short", "SSH_PRIVATE_KEY": "/home/me/.ssh/id_ed25519", "SECRET": "$FROM_SHELL"}, (), set()),
        (
            {
                **{
                    "GH_PAT": "anything at all",
                    "DB_PASS": "anything else",
                    "ENC_KEY": "and so on",
                    "SORT_PATH": "data/files",
                },
                "DB_URL": "postgres://u:w9Qx7z2aa@h.invalid/runs",
            },
            (),
            {"anything at all", "anything else", "and so on", "w9Qx7z2aa"},
        ),
        ({"OTHER": "ghp_" + "a1B2" * 9}, (), {"ghp_" + "a1B2" * 9}),
        (
            {},
            (
                "sh",
                "-c",
                "MY_TOKEN=correct-horse; export A_PASSWORD='battery staple'; x --api-key one-or-other $API_KEY",
            ),
            {"correct-horse", "battery staple", "one-or-other"},
        ),
        ({"WANDB_LOGIN": WANDB}, ("x", "--wandb-key", WANDB[::-1], "--image-key", "photos"), {WANDB, WANDB[::-1]}),
    ],
)
def test_the_secrets_that_a_program_is_given_are_known(env, argv, known):
    assert secret_values(env, argv) == known


def test_a_word_of_a_command_is_a_key_by_the_option_before_it():
    assert masked_words(["x", "--wandb-key", WANDB, "--image-key", "photos", "--commit", WANDB]) == [
        *("x", "--wandb-key", "***", "--image-key", "photos", "--commit", WANDB)
    ]


def test_a_known_secret_is_masked_whatever_stands_around_it():
    mask = OutputMask(["geheímnis-1"])
    assert mask.line("x=['geheímnis-1']geheímnis-1".encode()) == b"x=['***']***"
    assert masked_output("xcorrect-horsex", {"correct-horse"}) == "x***x"
