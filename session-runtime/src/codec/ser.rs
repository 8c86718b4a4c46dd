//! Serde's side of encoding: bincode writes the primitives, this counts bytes, depth and elements.

use super::{EncodeError, MAX_EMPTY_ELEMENTS, Maxima};
use bincode::config::{Configuration, standard};
use bincode::enc::{Encode, Encoder as _, EncoderImpl, write::Writer};
use bincode::error::EncodeError as Inner;
use bytes::Bytes;
use serde::ser::{self, Serialize};
use std::fmt::Display;

type Encoder<'a> = EncoderImpl<&'a mut Bounded, Configuration>;

/// How many bytes are encoded before memory is asked for. Most answers and entries are shorter.
const SMALL: usize = 128;

/// A buffer that refuses to grow beyond its maximum.
struct Bounded {
    /// What was written, until it is too much for here.
    small: [u8; SMALL],
    /// All of it, unless that is empty.
    large: Vec<u8>,
    /// How many bytes stood there before.
    start: usize,
    written: usize,
    max: usize,
}

impl Bounded {
    /// A buffer that begins with these bytes, which do not count.
    #[inline]
    fn behind(start: &[u8], maxima: Maxima) -> Self {
        let (mut small, mut large) = ([0; SMALL], Vec::new());
        match small.get_mut(..start.len()) {
            Some(room) => room.copy_from_slice(start),
            None => large.extend_from_slice(start),
        }
        Self { small, large, start: start.len(), written: 0, max: maxima.bytes }
    }

    #[inline]
    fn end(&self) -> usize {
        self.start.saturating_add(self.written)
    }

    #[inline]
    fn content(&self) -> &[u8] {
        if self.large.is_empty() { self.small.get(..self.end()).unwrap_or_default() } else { &self.large }
    }
}

impl Writer for Bounded {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<(), Inner> {
        if bytes.len() > self.max.saturating_sub(self.written) {
            return Err(Inner::UnexpectedEnd);
        }
        let end = self.end();
        if self.large.is_empty()
            && let Some(room) = self.small.get_mut(end..end.saturating_add(bytes.len()))
        {
            room.copy_from_slice(bytes);
        } else {
            if self.large.is_empty() {
                self.large = self.content().to_vec();
            }
            self.large.extend_from_slice(bytes);
        }
        self.written = self.written.saturating_add(bytes.len());
        Ok(())
    }
}

/// Encodes `value` behind these bytes.
pub(super) fn to_bytes<T: Serialize + ?Sized>(
    value: &T,
    maxima: Maxima,
    start: &[u8],
) -> Result<Bytes, EncodeError> {
    let mut out = Bounded::behind(start, maxima);
    encode(value, maxima, &mut out)?;
    Ok(if out.large.is_empty() { Bytes::copy_from_slice(out.content()) } else { out.large.into() })
}

/// Into a buffer that stays where it is: moving what was just written makes the processor wait for it.
#[inline]
fn encode<T: Serialize + ?Sized>(value: &T, maxima: Maxima, out: &mut Bounded) -> Result<(), EncodeError> {
    let mut budget = Budget { elements: 0, maxima };
    value.serialize(Serializer {
        encoder: &mut EncoderImpl::new(&mut *out, standard()),
        budget: &mut budget,
        depth: maxima.depth,
    })?;
    if budget.elements > out.written.saturating_add(MAX_EMPTY_ELEMENTS) {
        return Err(EncodeError::TooManyElements);
    }
    Ok(())
}

/// What the whole value has used up so far.
struct Budget {
    elements: usize,
    maxima: Maxima,
}

impl Budget {
    /// Counts elements.
    fn claim(&mut self, elements: usize) {
        self.elements = self.elements.saturating_add(elements);
    }

    /// Whether there are more elements than any decoder would accept.
    #[inline]
    fn is_exceeded(&self) -> bool {
        self.elements > self.maxima.bytes.saturating_add(MAX_EMPTY_ELEMENTS)
    }

    fn explain(&self, error: Inner) -> EncodeError {
        match error {
            Inner::UnexpectedEnd => EncodeError::TooLarge { max: self.maxima.bytes },
            other => EncodeError::Unsupported(other.to_string()),
        }
    }
}

impl ser::Error for EncodeError {
    fn custom<T: Display>(message: T) -> Self {
        Self::Unsupported(message.to_string())
    }
}

struct Serializer<'a, 'w> {
    encoder: &'a mut Encoder<'w>,
    budget: &'a mut Budget,
    /// Levels left below this value.
    depth: u32,
}

impl<'w> Serializer<'_, 'w> {
    #[inline]
    fn write<T: Encode + ?Sized>(&mut self, value: &T) -> Result<(), EncodeError> {
        value.encode(self.encoder).map_err(|error| self.budget.explain(error))
    }

    /// The serializer for a value inside this one.
    #[inline]
    fn inner(&mut self) -> Result<Serializer<'_, 'w>, EncodeError> {
        let depth =
            self.depth.checked_sub(1).ok_or(EncodeError::TooDeep { max: self.budget.maxima.depth })?;
        Ok(Serializer { encoder: self.encoder, budget: self.budget, depth })
    }

    /// Encodes a value inside this one. Where there are too many, the first decides whether they are too many bytes or
    /// take none, and no loop goes over all of them.
    #[inline]
    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), EncodeError> {
        if !self.budget.is_exceeded() {
            return value.serialize(self.inner()?);
        }
        let before = self.encoder.writer().written;
        value.serialize(self.inner()?)?;
        let takes_bytes = self.encoder.writer().written > before;
        let max = self.budget.maxima.bytes;
        Err(if takes_bytes { EncodeError::TooLarge { max } } else { EncodeError::TooManyElements })
    }

    fn write_length(&mut self, length: Option<usize>) -> Result<(), EncodeError> {
        let length = length.ok_or_else(|| {
            EncodeError::Unsupported("a sequence or map must know its length before it is encoded".to_owned())
        })?;
        self.budget.claim(length);
        self.write(&(length as u64))
    }
}

macro_rules! primitives {
    ($($method:ident: $type:ty),*) => {$(
        #[inline]
        fn $method(mut self, value: $type) -> Result<(), EncodeError> {
            self.write(&value)
        }
    )*};
}

impl ser::Serializer for Serializer<'_, '_> {
    type Ok = ();
    type Error = EncodeError;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    primitives!(
        serialize_bool: bool, serialize_char: char,
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_u128: u128,
        serialize_f32: f32, serialize_f64: f64, serialize_str: &str, serialize_bytes: &[u8]
    );

    fn serialize_none(mut self) -> Result<(), EncodeError> {
        self.write(&0u8)
    }

    fn serialize_some<T: Serialize + ?Sized>(mut self, value: &T) -> Result<(), EncodeError> {
        self.write(&1u8)?;
        value.serialize(self.inner()?)
    }

    fn serialize_unit(self) -> Result<(), EncodeError> {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), EncodeError> {
        Ok(())
    }

    fn serialize_unit_variant(
        mut self,
        _: &'static str,
        index: u32,
        _: &'static str,
    ) -> Result<(), EncodeError> {
        self.write(&index)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        mut self,
        _: &'static str,
        value: &T,
    ) -> Result<(), EncodeError> {
        value.serialize(self.inner()?)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        mut self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), EncodeError> {
        self.write(&index)?;
        value.serialize(self.inner()?)
    }

    fn serialize_seq(mut self, length: Option<usize>) -> Result<Self, EncodeError> {
        self.write_length(length)?;
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, EncodeError> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, EncodeError> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        mut self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, EncodeError> {
        self.write(&index)?;
        Ok(self)
    }

    fn serialize_map(mut self, length: Option<usize>) -> Result<Self, EncodeError> {
        self.write_length(length)?;
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, EncodeError> {
        Ok(self)
    }

    fn serialize_struct_variant(
        mut self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, EncodeError> {
        self.write(&index)?;
        Ok(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

macro_rules! compounds {
    ($($kind:ident: $method:ident($($key:ty)?)),*) => {$(
        impl ser::$kind for Serializer<'_, '_> {
            type Ok = ();
            type Error = EncodeError;

            #[inline]
            fn $method<T: Serialize + ?Sized>(&mut self, $(_: $key,)? value: &T) -> Result<(), EncodeError> {
                self.element(value)
            }

            fn end(self) -> Result<(), EncodeError> {
                Ok(())
            }
        }
    )*};
}

compounds!(
    SerializeSeq: serialize_element(),
    SerializeTuple: serialize_element(),
    SerializeTupleStruct: serialize_field(),
    SerializeTupleVariant: serialize_field(),
    SerializeStruct: serialize_field(&'static str),
    SerializeStructVariant: serialize_field(&'static str)
);

impl ser::SerializeMap for Serializer<'_, '_> {
    type Ok = ();
    type Error = EncodeError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), EncodeError> {
        self.element(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), EncodeError> {
        self.element(value)
    }

    fn end(self) -> Result<(), EncodeError> {
        Ok(())
    }
}
