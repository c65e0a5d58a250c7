#!/usr/bin/env bash
# make-venv.sh VENV TORCH EXTRAS: makes the virtual environment, installs TORCH, then Cordée in place with these extras.
set -euo pipefail
venv=$1 torch=$2 extras=$3
here=$(cd "$(dirname "$0")" && pwd)
export PIP_DISABLE_PIP_VERSION_CHECK=1

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then # not there, or left half made
  python=$(bash "$here/find-python.sh")
  echo "making $venv with $python ($("$python" -V))"
  rm -rf "$venv"
  "$python" -m venv "$venv"
fi
echo "installing $torch"
"$venv/bin/python" -m pip install -q "$torch"
echo "installing Cordée with $extras"
"$venv/bin/python" -m pip install -q -e ".[$extras]"
