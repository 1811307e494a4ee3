#!/usr/bin/env bash
# Runs test programs one after another and counts what they report.
#
#   tools/run_tests.sh PROGRAM...
#
# A program named test_X is a cmocka suite; its own summary is what counts.  A program named fuzz_X replays the inputs in
# tests/fuzz/corpus/X.  A suite that crashes, runs too long, gives no count, or counts nothing has failed, whatever it
# printed.  The last line is "N passed, N failed", and the status 1 if any failed.  A failed suite's output is shown; all
# of it stays in PROGRAM.log.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

limit_s=${WEFT_TEST_LIMIT_S:-1800}

n_passed=0 n_failed=0 n_skipped=0

# Adds up the numbers before "test(s)" in the lines of log $1 that begin with [$2] and match $3.  The name of a group may
# stand between the two, and a program may run several groups.
count() {
  sed -n "/^\[ *$2 *\].*$3/s/.*\b\([0-9][0-9]*\) test(s).*/\1/p" "$1" | awk '{ n += $1 } END { print n + 0 }'
}

# Programs for another processor need an emulator, WEFT_TEST_EMULATOR: a command and its options.
read -r -a launcher <<<"${WEFT_TEST_EMULATOR:-}"
# Thread sanitizer needs the address layout of older kernels; where that may be asked for, it is.
if [ "${WEFT_TEST_FIXED_LAYOUT:-}" = 1 ] && setarch "$(uname -m)" -R true 2>/dev/null; then
  launcher=(setarch "$(uname -m)" -R)
fi

# Sets passed, failed, skipped from the log of a suite and its status.
read_counts() {
  local program=$1 log=$2 status=$3 n_begun
  case "$(basename "$program")" in
  fuzz_*)
    passed=$(sed -n 's/^\([0-9][0-9]*\) inputs replayed$/\1/p' "$log" | tail -n 1)
    passed=${passed:-0} failed=0 skipped=0 n_begun=$passed
    ;;
  *)
    n_begun=$(count "$log" "=*" Running)
    passed=$(count "$log" PASSED "") failed=$(count "$log" FAILED listed) skipped=$(count "$log" SKIPPED listed)
    ;;
  esac
  problem=
  if [ "$status" = 124 ] || [ "$status" = 137 ]; then
    problem="ended after $limit_s s or killed"
  elif [ "$status" -gt 128 ]; then
    problem="crashed: signal $((status - 128))"
  elif [ "$((passed + failed + skipped))" = 0 ]; then
    problem="gave no count (status $status)"
  elif [ "$((passed + failed + skipped))" != "$n_begun" ]; then
    problem="$n_begun tests begun (status $status)"
  elif [ "$status" != 0 ] && [ "$failed" = 0 ]; then
    problem="status $status without a failed test"
  elif [ "$status" = 0 ] && [ "$failed" != 0 ]; then
    problem="status 0 with failed tests"
  fi
  # What is wrong with the suite as a whole counts as one more failed test.
  [ -z "$problem" ] || failed=$((failed + 1))
}

run_suite() {
  local program=$1 log=$1.log name arguments=() start_ms status passed failed skipped problem
  name=$(basename "$program")
  name=${name#test_}
  [[ $name != fuzz_* ]] || arguments=("tests/fuzz/corpus/${name#fuzz_}")
  start_ms=$(date +%s%3N)
  timeout --foreground -k 10 "$limit_s" "${launcher[@]}" "$program" "${arguments[@]}" </dev/null >"$log" 2>&1
  status=$?
  read_counts "$program" "$log" "$status"
  [ "$failed" = 0 ] || {
    echo "---- $name: output ----"
    cat "$log"
    echo "---- $name: end ----"
  }
  awk -v name="$name" -v passed="$passed" -v failed="$failed" -v skipped="$skipped" -v problem="$problem" \
    -v ms="$(($(date +%s%3N) - start_ms))" 'BEGIN {
      printf "  %-16s %4d passed, %d failed%s  %.1f s%s\n", name, passed, failed,
        skipped ? ", " skipped " skipped" : "", ms / 1000, problem ? "  (" problem ")" : "" }'
  n_passed=$((n_passed + passed)) n_failed=$((n_failed + failed)) n_skipped=$((n_skipped + skipped))
}

for program in "$@"; do
  run_suite "$program"
done

if [ "$((n_passed + n_failed))" = 0 ]; then
  echo "run_tests.sh: no test ran" >&2
  n_failed=1
fi
[ "$n_skipped" = 0 ] || echo "$n_skipped skipped"
echo "$n_passed passed, $n_failed failed"
[ "$n_failed" = 0 ]
