// cells_quads: tensors as arrays of quads; part of the tile kernels of kernels.def whose operands begin on quads throughout.
// The other way to bind the same tensors is cells_single.wgsl.

alias Cell = vec4<f32>;
const CELL = 4u; // elements

// The quad of elements that the four cells hold from the first element of each on: here all four are the same cell.
fn quad_of(a: Cell, b: Cell, c: Cell, d: Cell) -> vec4<f32> {
  return a;
}

// What cell number `index` of the quad holds.
fn cell_of(quad: vec4<f32>, index: u32) -> Cell {
  return quad;
}
