//! The head of a GGUF file: metadata and tensor descriptions (format version 3, little-endian).

use crate::plan::TensorInfo;

/// Alignment of tensor data, the format's default.
pub(crate) const ALIGNMENT: u64 = 32;

/// A metadata value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    U16(u16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(String),
    U32s(Vec<u32>),
    I32s(Vec<i32>),
    U64s(Vec<u64>),
    Bools(Vec<bool>),
    Strs(Vec<String>),
}

macro_rules! from {
    ($($kind:ident($from:ty)),*) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$kind(value)
            }
        })*
    };
}

from!(U32(u32), F32(f32), Bool(bool), U32s(Vec<u32>), Bools(Vec<bool>));

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Str(value.to_owned())
    }
}

/// Metadata in file order.
pub(crate) type Metadata = Vec<(String, Value)>;

/// `n` rounded up to the alignment.
pub(crate) const fn align(n: u64) -> u64 {
    n.next_multiple_of(ALIGNMENT)
}

fn put_str(out: &mut Vec<u8>, s: &str) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s.as_bytes());
}

fn put_array<T>(
    out: &mut Vec<u8>,
    element: u32,
    items: &[T],
    mut put: impl FnMut(&mut Vec<u8>, &T),
) {
    out.extend(9u32.to_le_bytes());
    out.extend(element.to_le_bytes());
    out.extend((items.len() as u64).to_le_bytes());
    for item in items {
        put(out, item);
    }
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    let mut scalar = |ty: u32, bytes: &[u8]| {
        out.extend(ty.to_le_bytes());
        out.extend(bytes);
    };
    match value {
        Value::U16(v) => scalar(2, &v.to_le_bytes()),
        Value::U32(v) => scalar(4, &v.to_le_bytes()),
        Value::I32(v) => scalar(5, &v.to_le_bytes()),
        Value::F32(v) => scalar(6, &v.to_le_bytes()),
        Value::Bool(v) => scalar(7, &[u8::from(*v)]),
        Value::Str(s) => {
            out.extend(8u32.to_le_bytes());
            put_str(out, s);
        }
        Value::U32s(v) => put_array(out, 4, v, |out, x| out.extend(x.to_le_bytes())),
        Value::I32s(v) => put_array(out, 5, v, |out, x| out.extend(x.to_le_bytes())),
        Value::U64s(v) => put_array(out, 10, v, |out, x| out.extend(x.to_le_bytes())),
        Value::Bools(v) => put_array(out, 7, v, |out, x| out.push(u8::from(*x))),
        Value::Strs(v) => put_array(out, 8, v, |out, x| put_str(out, x)),
    }
}

/// The bytes before the first tensor's data, padded to the alignment, for `tensors` stored one after the
/// other.
pub(crate) fn head(metadata: &[(String, Value)], tensors: &[TensorInfo]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 << 16);
    out.extend(b"GGUF");
    out.extend(3u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    for (name, value) in metadata {
        put_str(&mut out, name);
        put_value(&mut out, value);
    }
    let mut offset = 0u64;
    for t in tensors {
        put_str(&mut out, &t.name);
        out.extend((t.dims.len() as u32).to_le_bytes());
        for dim in &t.dims {
            out.extend(dim.to_le_bytes());
        }
        out.extend(t.ggml_type().to_le_bytes());
        out.extend(offset.to_le_bytes());
        offset = align(offset + t.bytes);
    }
    out.resize(align(out.len() as u64) as usize, 0);
    out
}
