#!/usr/bin/env bash
# demo.sh VENV: packs the corpus of examples/char-gpt, trains on it in an image made from this machine's own files (where the
# machine cannot, it says why and trains without), kills a rank, and goes on with twice as many. Says how to watch; the last
# lines say that every sample was trained on exactly once, and where the report is.
set -euo pipefail
bin=$(cd "$1/bin" && pwd)
example=examples/char-gpt
export VIRTUAL_ENV=${bin%/bin} PATH=$bin:$PATH
if [ ! -e "$example/corpus/corpus.idx" ]; then
  source=$("$bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["stdlib"])')
  "$bin/cordee" data pack "$source" --include '[a-c]*.py' --exclude '*/*' --as tokens --to "$example/corpus" >&2
fi
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
"$bin/python" scripts/demo_kill.py &
"$bin/cordee" run "$example" "${inside[@]}" --set restart.retries=0 && exit || code=$?
wait $! || exit "$code"            # it failed, and not because a rank was killed
echo "demo: going on with 4 ranks instead of 2" >&2
exec "$bin/cordee" resume last --nodes 4
