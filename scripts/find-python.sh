#!/usr/bin/env bash
# Prints the path of a Python that can make the environment: 3.11 to 3.14 with venv and ensurepip. Fails when there is none.
set -euo pipefail
for name in python3 python3.14 python3.13 python3.12 python3.11; do
  if command -v "$name" >/dev/null 2>&1 &&
    "$name" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' >/dev/null 2>&1; then
    command -v "$name"
    exit 0
  fi
done
exit 1
