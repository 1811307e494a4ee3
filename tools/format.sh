#!/usr/bin/env bash
# Runs clang-format with the given options over every source of ours.  Tables (.def) are left out: a person aligns them.
set -euo pipefail
cd "$(dirname "$0")/.."
find include src app examples tests -type f \( -name '*.[ch]' -o -name '*.inc' \) -print0 | sort -z | xargs -0 clang-format "$@"
