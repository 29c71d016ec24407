#!/usr/bin/env bash
# Builds the extension modules with a sanitizer in a folder of their own and runs the tests on them.
#
#   sanitize.sh address [pytest arguments]     AddressSanitizer, UBSan and LeakSanitizer
#   sanitize.sh thread  [pytest arguments]     ThreadSanitizer
#
# Reports go to files; one that names a module of this project fails the run, whatever the tests said.
# CPython itself is not instrumented: its own leaks and races are none of our business.
set -euo pipefail
kind=$1
shift
repository=$(cd "$(dirname "$0")/../.." && pwd)
python=${LSMKV_PYTHON:-$repository/.venv/bin/python}
level=${LSMKV_OPTIMIZE:-1}
folder=$repository/build/sanitize-$kind-O$level
reports=$folder/reports
case $kind in
    address) flags=address,undefined library=libasan.so ;;
    thread) flags=thread library=libtsan.so ;;
    *) echo "sanitize.sh: address or thread, not $kind" >&2; exit 2 ;;
esac

mkdir -p "$folder"
# Built modules stay from the last run: unchanged ones are not built again.
find "$folder" -type f ! -name '*.so' ! -path "$folder/build/*" -delete
# The C files are the same for every build, and half of the time that one takes.
tar -C "$repository" --exclude='*.so' --exclude=__pycache__ -cf - \
    lsmkv lsmkv_ext bench tools tests docs .ci setup.py pyproject.toml mkdocs.yml LICENSE \
    README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md | tar -C "$folder" -xf -
cd "$folder"
ln -sfn bench lsmkv_bench
LSMKV_SANITIZE=$flags LSMKV_OPTIMIZE=$level "$python" setup.py -q build_ext --inplace -j2

rm -rf "$reports"
mkdir "$reports"
# SIGBUS is left alone: a store into the mapping of a dead file system is meant to end the process.
export PYTHONPATH=$folder PYTHONMALLOC=malloc LSMKV_SANITIZED=$kind
export ASAN_OPTIONS=handle_sigbus=0:log_path=$reports/asan:detect_leaks=1:leak_check_at_exit=1:exitcode=0:allocator_may_return_null=1
export UBSAN_OPTIONS=log_path=$reports/ubsan:print_stacktrace=1
export LSAN_OPTIONS=report_objects=0
export TSAN_OPTIONS=log_path=$reports/tsan:exitcode=0:second_deadlock_stack=1:die_after_fork=0:suppressions=$repository/tests/crash/tsan.supp
preload=$(gcc -print-file-name=$library)
status=0
# Without address randomization the sanitizers find room for their shadow memory on every kernel; some containers forbid
# to turn it off.
plain=(setarch -R)
"${plain[@]}" true 2>/dev/null || plain=(env)
LD_PRELOAD=$preload "${plain[@]}" "$python" -m pytest -p no:cacheprovider "$@" || status=$?
if grep -l -r 'lsmkv_ext[./]\|native[./]' "$reports" >/dev/null; then
    echo "sanitizer reports that name the project:" >&2
    grep -l -r 'lsmkv_ext[./]\|native[./]' "$reports" | while read -r report; do head -60 "$report" >&2; done
    exit 1
fi
echo "$kind: no report names the project"
exit "$status"
