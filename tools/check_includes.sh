#!/usr/bin/env bash
# Checks the include rule: dependencies point down, and siblings never meet.
#
# The tables below are the rule.  A new folder, a new public header or a new third-party header gets its row here, and
# docs/architecture.md says why.  Tests may include anything.
set -euo pipefail
cd "$(dirname "$0")/.."

# Folder: the folders whose internal headers it may include besides its own.  From the bottom up: a public header may be
# included by its own folder and by those that stand below it in this table.
folders='
base:
tensor:    base
cpu:       base tensor
gpu:       base tensor
device:    base tensor cpu gpu
format:    base tensor
tokenizer: base format
llm:       base tensor format tokenizer
app:       base
examples:
'

# Public header, in include/weft/: the folder that it is the face of.  device.h also holds the options that a backend is
# opened with, so backends see it.
public='
base.h:        base
dtype.def:     tensor
tensor.h:      tensor
ops.def:       tensor
op_enums.h:    tensor
ops.h:         tensor
op_enums.h:    tensor
accelerator.h: tensor
device.h:      tensor
format.h:      format
tokenizer.h:   tokenizer
llm.h:         llm
'

# Headers that are not libc's, or that only one folder may depend on: the folders that may.
third_party='
pcre2.h:      tokenizer
utf8proc.h:   tokenizer
uthash.h:     format tokenizer
xxhash.h:     format tokenizer llm
jansson.h:    format app
histedit.h:   app
immintrin.h:  cpu
pthread.h:    base tensor cpu gpu
windows.h:    base
sys/mman.h:   base
dlfcn.h:      base
'

# One line an include: FILE LINE NAME.
# shellcheck disable=SC2016  # the dollar signs are awk's
includes() {
  find src app examples include/weft -type f \( -name '*.[ch]' -o -name '*.inc' -o -name '*.def' \) -print0 | sort -z |
    xargs -0 awk 'match($0, /^[ \t]*#[ \t]*include[ \t]*[<"][^>"]+[>"]/) {
      name = substr($0, RSTART, RLENGTH); sub(/^[^<"]*[<"]/, "", name); sub(/[>"]$/, "", name)
      print FILENAME, FNR, name }'
}

includes | awk -v folders="$folders" -v public="$public" -v third_party="$third_party" '
  # Reads a table into map[key] = " value value ", and order[key] = its row number.
  function read_table(text, map, order,   lines, n, i, parts) {
    n = split(text, lines, "\n")
    for (i = 1; i <= n; i++) {
      if (split(lines[i], parts, ":") < 2) continue
      gsub(/ +/, " ", parts[2])
      map[parts[1]] = " " parts[2] " "
      order[parts[1]] = i
    }
  }
  function trim(text) { gsub(/ /, "", text); return text }
  function allows(list, name) { return index(list, " " name " ") > 0 }
  function complain(why) { printf "%s:%d: \"%s\": %s\n", $1, $2, $3, why; n_bad++ }

  BEGIN {
    read_table(folders, may, rank)
    read_table(public, face, unused1)
    read_table(third_party, users, unused2)
  }

  { # The folder that the file belongs to.
    split($1, path, "/")
    if (path[1] == "src") folder = path[2]
    else if (path[1] == "app" || path[1] == "examples") folder = path[1]
    else folder = trim(face[path[3]])
    if (!(folder in may)) { complain("the file belongs to no folder of tools/check_includes.sh"); next }
    n_seen++

    slash = index($3, "/")
    head = slash ? substr($3, 1, slash - 1) : ""
    rest = substr($3, slash + 1)
    if (head == "weft") {
      if (!(rest in face)) complain("no public header of tools/check_includes.sh")
      else if (rank[trim(face[rest])] > rank[folder]) complain(folder " stands below " trim(face[rest]))
    } else if (head in may) {
      if (path[1] == "include") complain("a public header includes public headers only")
      else if (head != folder && !allows(may[folder], head)) complain(folder " may not include " head)
    } else if ($3 in users) {
      if (path[1] == "include") complain("a public header needs no library")
      else if (!allows(users[$3], folder)) complain(folder " may not use " $3)
    } else if (index($3, "..")) {
      complain("paths start at src/ or include/")
    } else if ($3 == "weft.h" && folder != "app" && folder != "examples") {
      complain("the umbrella is for users; include what is needed")
    }
  }

  END {
    if (!n_seen) { print "check_includes.sh: no include found"; exit 1 }
    printf "%d includes, %d against the rule\n", n_seen, n_bad
    exit n_bad > 0
  }'
