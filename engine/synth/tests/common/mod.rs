//! A small GGUF reader, written from the format's description: what it can't read, the writer got wrong.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A metadata value, with array elements reduced to text where tests look at them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Number(f64),
    Bool(bool),
    Str(String),
    Strs(Vec<String>),
    Numbers(Vec<f64>),
}

impl Value {
    pub(crate) fn number(&self) -> f64 {
        match self {
            Self::Number(n) => *n,
            other => panic!("not a number: {other:?}"),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dims: Vec<u64>,
    pub(crate) ggml_type: u32,
    /// From the start of the data section.
    pub(crate) offset: u64,
}

#[derive(Debug)]
pub(crate) struct Gguf {
    pub(crate) metadata: BTreeMap<String, Value>,
    pub(crate) tensors: Vec<Tensor>,
    /// Where the data section starts.
    pub(crate) data_start: u64,
    pub(crate) file_len: u64,
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let out = self.bytes[self.at..self.at + N].try_into().unwrap();
        self.at += N;
        out
    }
    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }
    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
    fn string(&mut self) -> String {
        let len = self.u64() as usize;
        let s = std::str::from_utf8(&self.bytes[self.at..self.at + len]).unwrap().to_owned();
        self.at += len;
        s
    }
    fn number(&mut self, ty: u32) -> f64 {
        match ty {
            2 => u16::from_le_bytes(self.take()).into(),
            4 => self.u32().into(),
            5 => i32::from_le_bytes(self.take()).into(),
            6 => f32::from_le_bytes(self.take()).into(),
            7 => self.take::<1>()[0].into(),
            10 => self.u64() as f64,
            other => panic!("value type {other} is not one that the writer uses"),
        }
    }
    fn value(&mut self, ty: u32) -> Value {
        match ty {
            7 => Value::Bool(self.number(7) != 0.0),
            8 => Value::Str(self.string()),
            9 => {
                let element = self.u32();
                let len = self.u64();
                if element == 8 {
                    Value::Strs((0..len).map(|_| self.string()).collect())
                } else {
                    Value::Numbers((0..len).map(|_| self.number(element)).collect())
                }
            }
            other => Value::Number(self.number(other)),
        }
    }
}

/// Reads the head of `path`.
pub(crate) fn read(path: &Path) -> Gguf {
    let bytes = fs::read(path).unwrap();
    let mut c = Cursor { bytes: &bytes, at: 0 };
    assert_eq!(&c.take::<4>(), b"GGUF");
    assert_eq!(c.u32(), 3, "version");
    let (n_tensors, n_values) = (c.u64(), c.u64());
    let mut metadata = BTreeMap::new();
    for _ in 0..n_values {
        let name = c.string();
        let ty = c.u32();
        let value = c.value(ty);
        assert!(metadata.insert(name.clone(), value).is_none(), "{name} is there twice");
    }
    let tensors = (0..n_tensors)
        .map(|_| {
            let name = c.string();
            let n_dims = c.u32();
            let dims = (0..n_dims).map(|_| c.u64()).collect();
            Tensor { name, dims, ggml_type: c.u32(), offset: c.u64() }
        })
        .collect();
    let data_start = c.at.next_multiple_of(32) as u64;
    Gguf { metadata, tensors, data_start, file_len: bytes.len() as u64 }
}
