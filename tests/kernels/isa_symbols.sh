#!/bin/sh
# Objects that are compiled for an instruction set share no function with the others: of equal ones the linker
# keeps any copy, and a machine that lacks the instructions would run it.
# usage: isa_symbols.sh OBJECT... (all of the kernels; those of an instruction set are picked by their names)
seen=0
status=0
for object in "$@"; do
  case $object in
    *_avx2.cpp.o | *_avx512*.cpp.o) ;;
    *) continue ;;
  esac
  seen=$((seen + 1))
  symbols=$(nm -C --defined-only "$object") || exit 1
  shared=$(printf '%s\n' "$symbols" | grep ' [WV] ' | grep -v ' DW\.ref\.')
  [ -z "$shared" ] && continue
  echo "$object: these may be linked into code for every machine:"
  echo "$shared"
  status=1
done
[ "$seen" -gt 0 ] || { echo "no object of an instruction set was given"; exit 1; }
exit $status
