// dot_plain: dot4 where the shading language lacks packed dot products.

// sum + the dot product of four signed bytes with four others.
fn dot4(a: u32, b: u32, sum: i32) -> i32 {
  let x = unpack4xI8(a) * unpack4xI8(b);
  return sum + x.x + x.y + x.z + x.w;
}
