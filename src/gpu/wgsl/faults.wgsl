// faults: part of each shader that notes what is wrong in the contents of its operands; `faults` is bound last.
//
// Word 0 is 1 + operator + 65536 * kind of the first fault noted since the host looked, 0 if there is none; words 1 to 4
// are its numbers, the texts' order (tensor/faults.def).  Word 5 is 1 once a fault has claimed them.  Kinds are the
// constants FAULT_...

fn note_fault(op: u32, kind: u32, numbers: vec4<u32>) {
  if (atomicMax(&faults[5], 1u) == 0u) {
    atomicStore(&faults[0], 1u + op + kind * 65536u);
    for (var i = 0u; i < 4u; i++) {
      atomicStore(&faults[1u + i], numbers[i]);
    }
  }
}

// As note_fault for an index of operand b: the element of b that holds it, and the extent and axis it points into.
fn note_index(op: u32, index: i32, element: u32, extent: u32, axis: u32) {
  note_fault(op, FAULT_INDEX, vec4<u32>(bitcast<u32>(index), element, extent, axis));
}
