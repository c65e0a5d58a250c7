#!/usr/bin/env bash
# Builds kube-apiserver from Debian's source package `kubernetes`, all modules of which are in it, into a folder outside of the tree
# (first argument). Takes about 15 minutes of one core, once. Needs golang-1.19-go, rsync, jq, make, dpkg-dev.
set -euo pipefail
target=$1
[ ! -x "$target/kube-apiserver" ] || exit 0
mkdir -p "$target"
work=$(mktemp -d "$target/build-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir -p lists/partial
# The machine's own mirror, asked for sources in lists of its own: the machine's stay as they are.
apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' 'Component: main' | grep -i debian | sort -u |
  sed 's|\(.*\) \(.*\)|deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \1 \2 main|' >sources.list
apt=(-o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$work/lists")
apt-get "${apt[@]}" -o APT::Sandbox::User=root -qq update
apt-get "${apt[@]}" -o APT::Sandbox::User=root -qq --only-source --download-only source kubernetes
dpkg-source --no-check -x kubernetes_*.dsc source >/dev/null
cd source
export PATH=/usr/lib/go-1.19/bin:$PATH HOME=$work GOCACHE=$work/cache GOFLAGS=-mod=vendor GOPROXY=off GOTOOLCHAIN=local
make WHAT=cmd/kube-apiserver KUBE_GIT_TREE_STATE=clean KUBE_GIT_COMMIT=debian KUBE_GIT_VERSION=v1.20.2 GOLDFLAGS=-w
install _output/local/bin/linux/*/kube-apiserver "$target/kube-apiserver"
chmod -R u+w "$work" # Go keeps its modules read-only
