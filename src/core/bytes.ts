// Compares, views and copies bytes and numbers in memory.

/** Whether the text stands there, which has to be ASCII. */
export function hasTextAt(data: Buffer, at: number, text: string): boolean {
  if (at + text.length > data.length) return false;
  for (let index = 0; index < text.length; index += 1) {
    if (data[at + index] !== text.charCodeAt(index)) return false;
  }
  return true;
}

export function createView(bytes: Buffer): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
}

export function copyToLength(part: Float64Array, length: number): Float64Array<ArrayBuffer> {
  const array = new Float64Array(length);
  array.set(part);
  return array;
}
