#!/usr/bin/env bash
# demo.sh VENV: trains examples/char-gpt in an image made from this machine's own files; where the machine cannot, it says
# why and trains without. Says how to watch; the last line is the report.
set -euo pipefail
bin=$(cd "$1/bin" && pwd)
example=examples/char-gpt
export VIRTUAL_ENV=${bin%/bin} PATH=$bin:$PATH
inside=(--set environment=env.toml)
if ! "$bin/python" "$example/make_image.py" || ! said=$("$bin/cordee" check "$example" "${inside[@]}" 2>&1 >/dev/null); then
  echo "${said:-}" >&2
  echo "training without a container: this machine cannot run examples/char-gpt/env.toml" >&2
  inside=()
fi
cat >&2 <<EOF
watch it while it trains: in another terminal, in this folder,
  $1/bin/cordee serve --open     pages in a browser: http://127.0.0.1:8090, from ${CORDEE_RUNS:-$PWD/runs}
  $1/bin/cordee watch            the same in the terminal
EOF
exec "$bin/cordee" run "$example" "${inside[@]}"
