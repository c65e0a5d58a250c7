"""Passwords are found in every form in which files carry them; what only stands for one is none."""

from __future__ import annotations

import time

import pytest

from cordee.core.passwords import keys_and_passwords_in, passwords_in

PW = "Xk29dkQw"
PYTHON = "import os\n"
FOUND = [
    # Python
    *(
        PYTHON + line
        for line in (
            f'password = "{PW}"',
            f"self.db_password: str = '{PW}'",
            f"passwd: Optional[str] = '{PW}'",
            f'config = {{"user": "u", "password": "{PW}"}}',
            f'os.environ["WANDB_PASSWORD"] = "{PW}"',
            f'os.environ.setdefault("PGPASSWORD", "{PW}")',
            f'pw = os.getenv("DB_PASS", "{PW}")',
            f'parser.add_argument("--password", type=str, default="{PW}")',
            f'connect(host="db", user="u", password="{PW}")',
            f'requests.get(url, auth=("ana", "{PW}"))',
            f'HTTPBasicAuth("ana", "{PW}")',
            f'psycopg2.connect("host=db user=ana password={PW} dbname=x")',
            f'client_secret = "{PW}1m2"',
            f"smtp_pass = r'{PW}'",
        )
    ),
    # Shells, and what programs are given
    *(
        f"#!/bin/bash\n{line}\n"
        for line in (
            f"export DB_PASSWORD={PW}",
            f"export MYSQL_PWD='{PW}'",
            f"PGPASSWORD={PW} psql -h db",
            f"mysql -u root -p{PW} db",
            f"mysqldump --password={PW} db",
            f"train --db-password {PW}",
            f"curl -s -u ana:{PW} https://x.org",
            f"sshpass -p '{PW}' ssh ana@h",
            f"docker login -u ana -p {PW} reg",
            f"echo {PW} | docker login -u ana --password-stdin reg",
            f"docker run -e POSTGRES_PASSWORD={PW} postgres",
            f"redis-cli -a {PW} ping",
            f"openssl enc -aes-256-cbc -pass pass:{PW} -in x",
            f"srun --export=ALL,DB_PASSWORD={PW} python t.py",
            f"echo 'ana:{PW}' | chpasswd",
        )
    ),
    # Configurations
    f"db:\n  password: {PW}\n",
    f"env:\n  - name: DB_PASSWORD\n    value: {PW}\n",
    f"auth: {{user: ana, password: {PW}}}\n",
    f"redis-pass: '{PW}' # here\n",
    f"[client]\nuser = ana\npassword = {PW}\n",
    f"[db]\npass={PW}\n",
    f"connection = Server=db;User Id=ana;Password={PW};Encrypt=True\n",
    f"url = jdbc:mysql://db/x?user=ana&password={PW}\n",
    f'{{"db": {{"password": "{PW}"}}}}',
    f'{{"args": ["--password",\n "{PW}"]}}',
    f"<server><password>{PW}</password></server>",
    f"<property><name>x.ConnectionPassword</name><value>{PW}</value></property>",
    f'<add key="password" value="{PW}"/>',
    f"FROM x\nENV DB_PASSWORD={PW}\n",
    f"FROM x\nENV DB_PASSWORD {PW}\n",
    f"# Notes\nPassword: {PW}\n",
    f'{{"cells": [{{"source": ["password = \\"{PW}\\"\\n"]}}]}}',
    f'{{"cells": [{{"source": ["!export DB_PASSWORD={PW}\\n"]}}]}}',
    # Files of tools
    f"machine api.x.org login ana password {PW}\n",
    f"machine y.org\n  login ana\n  password {PW}\n",
    f"db:5432:*:ana:{PW}\n",
]
WORDS = [
    ("DB_PASSWORD=correct_horse_battery_staple\n", "correct_horse_battery_staple"),
    ("PASSWORD=sunshine\n", "sunshine"),
    ("passphrase: correct-horse-battery\n", "correct-horse-battery"),
    ("ADMIN_PASSWORD=83746512\n", "83746512"),
    ("PASSWORD: kQ^7Rt31hzZpW\n", "kQ^7Rt31hzZpW"),
    ("secret_key = aZ9kQ2mX7pL4\n", "aZ9kQ2mX7pL4"),
    ("SECRET_KEY = 'django-insecure-#x9k2$d8f7h3j4k5l6q1w2e3r4t5y6'", "django-insecure-#x9k2$d8f7h3j4k5l6q1w2e3r4t5y6"),
    ('{"username": "ana", "key": "7f23e56a89abcdef0a1b2c3d4e5f6071"}', "7f23e56a89abcdef0a1b2c3d4e5f6071"),
]
NONE = [
    *(
        PYTHON + line
        for line in (
            'password = os.environ["DB_PASSWORD"]',
            'password = getpass.getpass("Password: ")',
            "password: Optional[str] = None",
            "login(password=password1, token=token2)",
            'parser.add_argument("--password", default=None, help="the password1 of x")',
            'PASSWORD = "<your password1>"',
            'password = "changeme1"',
            'password = f"{prefix}_{name}1"',
            'pad_token = "[PAD1]"',
            "bos_token = 'Bos123Token'",
            "token = tokenizer.decode(t2x)",
            'cache_key = "features_v2_2024"',
            'auth = ("user", "pass1")',
            'hash_pass = "sha256"',
            'fields = ["username", "password", "email2"]',
            'passwd = "/etc/passwd1"',
            'secret = "arn:aws:secretsmanager:eu-west-1:123:secret:x"',
            r'password = r"^(?=.*[A-Z])(?=.*\d).{8,}$"',
            'password = "correct horse battery 1"',
            'if password == "abc1234": pass',
            '"a/graph/badge.svg?token=SmzX8mnKlA"',
            '"NextPageToken": "QTKknzFg2J4ygwa"',
        )
    ),
    *(
        line + "\n"
        for line in (
            "password: ${DB_PASSWORD1}",
            "password: {{ vault_db_password1 }}",
            "password: !vault |",
            "password: ENC[AES256_GCM,data:abc1]",
            "existingSecret: my-db-secret1",
            "secretKeyRef: {name: db1, key: password1}",
            "tokenizer_class: Qwen2TokenizerFast",
            "password: string",
            "password: Passwort",
            "password_hash: $6$rounds=4096$abc$def",
            "password: vault:secret/data/db#password1",
            "max_tokens: 4096x1",
        )
    ),
    *(
        f"#!/bin/bash\n{line}\n"
        for line in (
            "export DB_PASSWORD=$(cat ~/.pw1)",
            "PASSWORD=${PASSWORD:-}",
            "mysql -u root -p db1",
            'curl -u "$USER:$PASSWORD1" https://x',
            'echo "$PW1" | docker login --password-stdin',
            "PASSED=12/14x",
            "srun --export=ALL,PASSWORD python x1.py",
        )
    ),
    "Set `password: <your-password>`; it must have 8 characters.\n--password PASSWORD1\n",
]


@pytest.mark.parametrize(("text", "password"), [*((text, PW) for text in FOUND), *WORDS])
def test_a_password_is_found(text, password):
    found = [text[key.begin : key.end] for key in keys_and_passwords_in(text)]
    assert [one[: len(password)] for one in found] == [password]


@pytest.mark.parametrize("text", NONE)
def test_what_only_stands_for_a_password_is_none(text):
    assert [text[key.begin : key.end] for key in passwords_in(text)] == []


def test_what_has_a_form_of_its_own_is_found_once():
    text = 'api_key="ghp_aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5"; password="https://ana:Xk29dkQw@x.org"'
    assert [key.kind for key in keys_and_passwords_in(text)] == ["github", "password-in-url"]


@pytest.mark.parametrize(
    "part",
    [
        "password",
        'password="',
        "pass:",
        "'--password', default",
        "token: ",
        "curl -u a",
        "login ",
        f'password="{PW}"\n',
    ],
)
def test_no_text_takes_long(part):
    began = time.process_time()
    list(passwords_in(part * (2_000_000 // len(part))))
    assert time.process_time() - began < 20
