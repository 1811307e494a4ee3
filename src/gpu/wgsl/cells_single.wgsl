// cells_single: tensors as arrays of elements, for the tile kernels of kernels.def where rows may begin anywhere.
// The other way to bind the same tensors is cells_quads.wgsl.

alias Cell = f32;
const CELL = 1u; // elements

// The quad of elements that the four cells hold.
fn quad_of(a: Cell, b: Cell, c: Cell, d: Cell) -> vec4<f32> {
  return vec4<f32>(a, b, c, d);
}

// What cell number `index` of the quad holds.
fn cell_of(quad: vec4<f32>, index: u32) -> Cell {
  return quad[index];
}
