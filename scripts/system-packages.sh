#!/usr/bin/env bash
# Installs the Debian packages whose commands are missing: COMMAND:PACKAGE ... As a normal user it says what is missing.
set -euo pipefail
missing=()
for pair in "$@"; do
  command -v "${pair%%:*}" >/dev/null 2>&1 || missing+=("${pair##*:}")
done
python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing+=("python3-venv")
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "installing system packages: ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
else
  echo "missing system packages: ${missing[*]}" >&2
  echo "install them (sudo apt-get install ${missing[*]}); what needs them fails until then" >&2
fi
