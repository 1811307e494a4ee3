// dot_packed: dot4 where the shading language has packed dot products.

// sum + the dot product of four signed bytes with four others.
fn dot4(a: u32, b: u32, sum: i32) -> i32 {
  return sum + dot4I8Packed(a, b);
}
