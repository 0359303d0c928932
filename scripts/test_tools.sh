#!/usr/bin/env bash
# Installs what some long tests start and nothing else needs: Chromium, Prometheus, tmux. `make chaos` calls it.
# Never fails: where one cannot be installed, its tests fail and say which one is missing.
set -uo pipefail

missing=()
for program in chromium prometheus tmux; do
    command -v "$program" >/dev/null 2>&1 || missing+=("$program")
done
((${#missing[@]})) || exit 0
if [[ "$(id -u)" != 0 ]] || ! command -v apt-get >/dev/null 2>&1; then
    printf 'test tools: %s missing, and cannot be installed from here\n' "${missing[*]}" >&2
    exit 0
fi
printf 'test tools: installing %s\n' "${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
{ apt-get -qq update && RUNLEVEL=1 apt-get -qq -y --no-install-recommends install "${missing[@]}"; } >/dev/null 2>&1 \
    || printf 'test tools: %s could not be installed\n' "${missing[*]}" >&2
