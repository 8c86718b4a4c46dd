//! Serde's side of decoding: bincode reads the primitives, this counts depth and elements.

use super::{DecodeError, MAX_EMPTY_ELEMENTS, MAX_STATE, Maxima};
use bincode::config::{Configuration, Limit, LittleEndian, Varint, standard};
use bincode::de::read::{BorrowReader, Reader};
use bincode::de::{BorrowDecode, Decode, Decoder as _, DecoderImpl};
use bincode::error::DecodeError as Inner;
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Visitor};
use std::fmt::Display;

/// bincode's own limit counts the size of integers in memory, at most 16 for each byte of input. It never
/// refuses an honest input, because the input's length is checked first; it stands behind that check.
const LIMIT: usize = MAX_STATE.saturating_mul(16);

type Decoder<'de> = DecoderImpl<Input<'de>, Configuration<LittleEndian, Varint, Limit<LIMIT>>, ()>;

/// What is left of the input.
struct Input<'de> {
    rest: &'de [u8],
}

impl Reader for Input<'_> {
    #[inline]
    fn read(&mut self, bytes: &mut [u8]) -> Result<(), Inner> {
        bytes.copy_from_slice(self.take_bytes(bytes.len())?);
        Ok(())
    }

    #[inline]
    fn peek_read(&mut self, count: usize) -> Option<&[u8]> {
        self.rest.get(..count)
    }

    #[inline]
    fn consume(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }
}

impl<'de> BorrowReader<'de> for Input<'de> {
    #[inline]
    fn take_bytes(&mut self, count: usize) -> Result<&'de [u8], Inner> {
        let (taken, rest) =
            self.rest.split_at_checked(count).ok_or(Inner::UnexpectedEnd { additional: 0 })?;
        self.rest = rest;
        Ok(taken)
    }
}

/// Decodes an input that is one value and nothing else.
pub(super) fn from_slice<T: DeserializeOwned>(bytes: &[u8], maxima: Maxima) -> Result<T, DecodeError> {
    match from_slice_start(bytes, maxima)? {
        (value, 0) => Ok(value),
        (_, bytes) => Err(DecodeError::Trailing { bytes }),
    }
}

/// Decodes the value at the start of an input, and says how many bytes follow it.
pub(super) fn from_slice_start<T: DeserializeOwned>(
    bytes: &[u8],
    maxima: Maxima,
) -> Result<(T, usize), DecodeError> {
    if bytes.len() > maxima.bytes {
        return Err(DecodeError::TooLarge { max: maxima.bytes });
    }
    let config = standard().with_limit::<LIMIT>();
    let mut decoder = DecoderImpl::new(Input { rest: bytes }, config, ());
    let mut budget = Budget {
        elements: bytes.len().saturating_add(MAX_EMPTY_ELEMENTS),
        reserved: bytes.len(),
        max_depth: maxima.depth,
    };
    let value =
        T::deserialize(Deserializer { decoder: &mut decoder, budget: &mut budget, depth: maxima.depth })?;
    Ok((value, decoder.reader().rest.len()))
}

/// What the whole value may still use.
struct Budget {
    elements: usize,
    /// The elements that collections may still reserve room for. All of a value together never more than it has
    /// bytes: else lists in lists could each reserve for all that follows.
    reserved: usize,
    max_depth: u32,
}

impl de::Error for DecodeError {
    fn custom<T: Display>(message: T) -> Self {
        Self::Invalid(message.to_string())
    }
}

fn explain(error: Inner) -> DecodeError {
    match error {
        // A length beyond the limit is a length beyond the input.
        Inner::UnexpectedEnd { .. } | Inner::LimitExceeded => DecodeError::Truncated,
        Inner::Utf8 { .. } => DecodeError::Invalid("a string is not UTF-8".to_owned()),
        Inner::InvalidBooleanValue(byte) => {
            DecodeError::Invalid(format!("{byte} is neither false (0) nor true (1)"))
        }
        Inner::InvalidCharEncoding(_) => DecodeError::Invalid("a character is not UTF-8".to_owned()),
        other => DecodeError::Invalid(other.to_string()),
    }
}

struct Deserializer<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    budget: &'a mut Budget,
    /// Levels left below this value.
    depth: u32,
}

impl<'de> Deserializer<'_, 'de> {
    #[inline]
    fn read<T: Decode<()>>(&mut self) -> Result<T, DecodeError> {
        T::decode(self.decoder).map_err(explain)
    }

    #[inline]
    fn borrow<T: BorrowDecode<'de, ()>>(&mut self) -> Result<T, DecodeError> {
        T::borrow_decode(self.decoder).map_err(explain)
    }

    /// The deserializer for a value inside this one.
    #[inline]
    fn inner(&mut self) -> Result<Deserializer<'_, 'de>, DecodeError> {
        let depth = self.depth.checked_sub(1).ok_or(DecodeError::TooDeep { max: self.budget.max_depth })?;
        Ok(Deserializer { decoder: self.decoder, budget: self.budget, depth })
    }

    fn read_length(&mut self) -> Result<usize, DecodeError> {
        let length = self.read::<u64>()?;
        let length = usize::try_from(length).map_err(|_| DecodeError::TooManyElements)?;
        self.budget.elements =
            self.budget.elements.checked_sub(length).ok_or(DecodeError::TooManyElements)?;
        Ok(length)
    }

    /// The elements of a collection that says how many it has.
    fn collection(mut self) -> Result<Elements<Self>, DecodeError> {
        let left = self.read_length()?;
        let most = left.min(self.decoder.reader().rest.len()).min(self.budget.reserved);
        self.budget.reserved = self.budget.reserved.saturating_sub(most);
        Ok(Elements { inner: self, left, most })
    }

    /// The elements of what has as many as its type says.
    fn elements(self, left: usize) -> Elements<Self> {
        Elements { inner: self, left, most: left }
    }
}

macro_rules! primitives {
    ($($method:ident -> $visit:ident),*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, DecodeError> {
            visitor.$visit(self.read()?)
        }
    )*};
}

macro_rules! not_self_describing {
    ($($method:ident),*) => {$(
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, DecodeError> {
            Err(DecodeError::Invalid(
                "the type wants to look at the data to learn its shape, and the format does not tell \
                 (serde's flatten, untagged, tag, skip_serializing_if need that)".to_owned(),
            ))
        }
    )*};
}

impl<'de> de::Deserializer<'de> for Deserializer<'_, 'de> {
    type Error = DecodeError;

    primitives!(
        deserialize_bool -> visit_bool, deserialize_char -> visit_char,
        deserialize_i8 -> visit_i8, deserialize_i16 -> visit_i16, deserialize_i32 -> visit_i32,
        deserialize_i64 -> visit_i64, deserialize_i128 -> visit_i128,
        deserialize_u8 -> visit_u8, deserialize_u16 -> visit_u16, deserialize_u32 -> visit_u32,
        deserialize_u64 -> visit_u64, deserialize_u128 -> visit_u128,
        deserialize_f32 -> visit_f32, deserialize_f64 -> visit_f64
    );

    not_self_describing!(deserialize_any, deserialize_identifier, deserialize_ignored_any);

    fn deserialize_str<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_borrowed_str(self.borrow()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_borrowed_bytes(self.borrow()?)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.read::<u8>()? {
            0 => visitor.visit_none(),
            1 => visitor.visit_some(self.inner()?),
            tag => Err(DecodeError::Invalid(format!("{tag} is neither None (0) nor Some (1)"))),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        mut self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self.inner()?)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_seq(self.collection()?)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_seq(self.elements(length))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_seq(self.elements(length))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_map(self.collection()?)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_seq(self.elements(fields.len()))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_enum(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// The elements of a sequence, the fields of a struct, or the pairs of a map.
struct Elements<D> {
    inner: D,
    left: usize,
    /// What a collection may reserve room for, whatever is claimed.
    most: usize,
}

impl<'de> de::SeqAccess<'de> for Elements<Deserializer<'_, 'de>> {
    type Error = DecodeError;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        match self.left.checked_sub(1) {
            None => Ok(None),
            Some(left) => {
                self.left = left;
                seed.deserialize(self.inner.inner()?).map(Some)
            }
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.min(self.most))
    }
}

impl<'de> de::MapAccess<'de> for Elements<Deserializer<'_, 'de>> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        de::SeqAccess::next_element_seed(self, seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DecodeError> {
        seed.deserialize(self.inner.inner()?)
    }

    fn size_hint(&self) -> Option<usize> {
        de::SeqAccess::size_hint(self)
    }
}

impl<'de> de::EnumAccess<'de> for Deserializer<'_, 'de> {
    type Error = DecodeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(mut self, seed: V) -> Result<(V::Value, Self), DecodeError> {
        let index: u32 = self.read()?;
        let variant = seed.deserialize(IntoDeserializer::<DecodeError>::into_deserializer(index))?;
        Ok((variant, self))
    }
}

impl<'de> de::VariantAccess<'de> for Deserializer<'_, 'de> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(mut self, seed: T) -> Result<T::Value, DecodeError> {
        seed.deserialize(self.inner()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_seq(self.elements(length))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_seq(self.elements(fields.len()))
    }
}
