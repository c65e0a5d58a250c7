#!/usr/bin/env bash
# Makes the virtual environment VENV with the newest Python from 3.11 on, and installs TORCH before everything else,
# so that no other package brings another build of it.
set -euo pipefail
venv=$1 torch=$2
find_python() {
  for name in python3.11 python3 python3.12 python3.13 python3.14; do
    if command -v "$name" >/dev/null 2>&1 && "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      command -v "$name"
      return
    fi
  done
  echo "Cordée needs Python 3.11 or newer with its venv module; none was found (Debian: apt-get install python3 python3-venv)" >&2
  exit 1
}
if [ ! -x "$venv/bin/python" ]; then
  python=$(find_python)
  echo "making $venv with $python"
  "$python" -m venv "$venv"
fi
export PIP_DISABLE_PIP_VERSION_CHECK=1
"$venv/bin/python" -c 'import torch, sys; sys.exit(torch.__version__.split("+")[0] != sys.argv[1])' "${torch##*==}" >/dev/null 2>&1 \
  || "$venv/bin/pip" install -q "$torch"
"$venv/bin/pip" install -q -e ".[docs,dev,torch]"
