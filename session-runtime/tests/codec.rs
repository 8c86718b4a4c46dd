//! The codec against honest and hostile bytes.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use session_runtime::codec::{
    self, DecodeError, EncodeError, MAX_EMPTY_ELEMENTS, MAX_PAYLOAD, MAX_PAYLOAD_DEPTH, MAX_STATE_DEPTH,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Unit,
    New(u64),
    Tuple(i32, String),
    Struct { name: String, tags: Vec<String>, map: BTreeMap<u8, Option<bool>> },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Wrapper(Vec<Shape>);

#[allow(clippy::needless_pass_by_value)] // a table of values
fn round_trip<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T, bytes: &[u8]) {
    assert_eq!(codec::encode(&value).unwrap(), bytes, "{value:?}");
    assert_eq!(codec::decode::<T>(bytes).unwrap(), value);
    assert_eq!(codec::encode_state(&value).unwrap(), bytes, "state has the same bytes");
    assert_eq!(codec::decode_state::<T>(bytes).unwrap(), value);
    for length in 0..bytes.len() {
        assert!(codec::decode::<T>(&bytes[..length]).is_err(), "{value:?} cut at {length}");
    }
    let longer = [bytes, &[0]].concat();
    assert_eq!(codec::decode::<T>(&longer), Err(DecodeError::Trailing { bytes: 1 }));
}

#[test]
fn the_wire_form_is_fixed_for_ever() {
    round_trip((), &[]);
    round_trip((true, false), &[1, 0]);
    round_trip(250u64, &[250]);
    round_trip(251u64, &[251, 251, 0]);
    round_trip(65_536u64, &[252, 0, 0, 1, 0]);
    round_trip(u64::MAX, &[253, 255, 255, 255, 255, 255, 255, 255, 255]);
    round_trip(u128::MAX, &[&[254][..], &[255; 16]].concat());
    round_trip((-1i64, 1i16), &[1, 2]);
    round_trip((7u8, -7i8), &[7, 249]);
    round_trip('é', &[0xc3, 0xa9]);
    round_trip("aé".to_owned(), &[3, b'a', 0xc3, 0xa9]);
    round_trip((None::<u8>, Some(5u8)), &[0, 1, 5]);
    round_trip([1u16, 2, 300], &[1, 2, 251, 44, 1]);
    round_trip(vec![1u16, 2], &[2, 1, 2]);
    round_trip(bytes::Bytes::from_static(b"xyz"), b"\x03xyz");
    round_trip(BTreeMap::from([(1u8, "a".to_owned())]), &[1, 1, 1, b'a']);
    round_trip(BTreeSet::from([3u8, 1]), &[2, 1, 3]);
    round_trip(1.5f64, &1.5f64.to_le_bytes());
    round_trip(
        Wrapper(vec![
            Shape::Unit,
            Shape::New(9),
            Shape::Tuple(-2, "x".to_owned()),
            Shape::Struct {
                name: String::new(),
                tags: vec!["t".to_owned()],
                map: BTreeMap::from([(4, Some(true))]),
            },
        ]),
        &[4, 0, 1, 9, 2, 3, 1, b'x', 3, 0, 1, 1, b't', 1, 4, 1, 1],
    );
}

#[test]
fn hostile_lengths_are_errors() {
    let max = [253, 255, 255, 255, 255, 255, 255, 255, 255];
    let tera = [253, 0, 0, 0, 0, 0, 1, 0, 0];
    for length in [max, tera] {
        assert_eq!(codec::decode::<String>(&length), Err(DecodeError::Truncated));
        assert_eq!(codec::decode::<bytes::Bytes>(&length), Err(DecodeError::Truncated));
        assert_eq!(codec::decode::<Vec<u64>>(&length), Err(DecodeError::TooManyElements));
        assert_eq!(codec::decode::<Vec<()>>(&length), Err(DecodeError::TooManyElements));
        assert_eq!(codec::decode::<BTreeMap<u8, u8>>(&length), Err(DecodeError::TooManyElements));
        assert_eq!(codec::decode::<Vec<Vec<()>>>(&length), Err(DecodeError::TooManyElements));
    }
}

#[test]
fn elements_without_bytes_are_counted_alike_on_both_sides() {
    // A sequence this long takes 5 bytes for its length.
    for (length, fits) in [(MAX_EMPTY_ELEMENTS + 5, true), (MAX_EMPTY_ELEMENTS + 6, false)] {
        let many = vec![(); length];
        let claim = [&[252][..], &u32::try_from(length).unwrap().to_le_bytes()].concat();
        assert_eq!(codec::encode(&many).is_ok(), fits);
        assert_eq!(codec::decode::<Vec<()>>(&claim).is_ok(), fits);
    }
    let nested = vec![vec![(); 300]; 300];
    assert_eq!(codec::encode(&nested), Err(EncodeError::TooManyElements));
    let honest = vec![7u8; 200_000];
    assert_eq!(codec::decode::<Vec<u8>>(&codec::encode(&honest).unwrap()).unwrap(), honest);
    assert_eq!(codec::encode(&vec![(); usize::MAX]), Err(EncodeError::TooManyElements));
    let too_large = EncodeError::TooLarge { max: codec::MAX_PAYLOAD };
    assert_eq!(
        codec::encode(&vec![7u8; codec::MAX_PAYLOAD + (1 << 17)]),
        Err(too_large),
        "of bytes, not of nothings"
    );
}

/// Nests without end: by newtype variants, options, sequences and structs.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Deep {
    End,
    New(Box<Deep>),
    Some(Option<Box<Deep>>),
    Many(Vec<Deep>),
    Field { inner: Box<Deep> },
}

/// Each way to go one deeper, with the bytes it adds and the levels it takes.
const WAYS: [(&[u8], u32); 4] = [(&[1], 1), (&[2, 1], 2), (&[3, 1], 2), (&[4], 1)];

fn nested(way: usize, times: u32) -> Deep {
    (0..times).fold(Deep::End, |inner, _| match way {
        0 => Deep::New(Box::new(inner)),
        1 => Deep::Some(Some(Box::new(inner))),
        2 => Deep::Many(vec![inner]),
        _ => Deep::Field { inner: Box::new(inner) },
    })
}

#[test]
fn depth_is_counted_alike_on_both_sides() {
    for (way, (bytes, levels)) in WAYS.into_iter().enumerate() {
        let most = MAX_PAYLOAD_DEPTH / levels;
        for (times, fits) in [(most, true), (most + 1, false)] {
            let wire = [bytes.repeat(times as usize), vec![0]].concat();
            let value = nested(way, times);
            if fits {
                assert_eq!(codec::encode(&value).unwrap(), wire);
                assert_eq!(codec::decode::<Deep>(&wire).unwrap(), value);
            } else {
                let max = MAX_PAYLOAD_DEPTH;
                assert_eq!(codec::encode(&value), Err(EncodeError::TooDeep { max }));
                assert_eq!(codec::decode::<Deep>(&wire), Err(DecodeError::TooDeep { max }));
            }
        }
    }
}

#[test]
fn deep_nesting_in_four_megabytes_does_not_overflow_a_two_megabyte_stack() {
    let decode_everything = || {
        for (bytes, _) in WAYS {
            let wire = bytes.repeat((4 << 20) / bytes.len());
            let max = MAX_PAYLOAD_DEPTH;
            assert_eq!(codec::decode::<Deep>(&wire), Err(DecodeError::TooDeep { max }));
            let max = MAX_STATE_DEPTH;
            assert_eq!(codec::decode_state::<Deep>(&wire), Err(DecodeError::TooDeep { max }));
        }
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(decode_everything).unwrap().join().unwrap();
}

#[test]
fn size_is_limited_alike_on_both_sides() {
    // The length takes 5 bytes.
    for (length, fits) in [(MAX_PAYLOAD - 5, true), (MAX_PAYLOAD - 4, false)] {
        let text = "x".repeat(length);
        let wire = codec::encode_state(&text).unwrap();
        if fits {
            assert_eq!(codec::encode(&text).unwrap(), wire);
            assert_eq!(codec::decode::<String>(&wire).unwrap(), text);
        } else {
            let max = MAX_PAYLOAD;
            assert_eq!(codec::encode(&text), Err(EncodeError::TooLarge { max }));
            assert_eq!(codec::decode::<String>(&wire), Err(DecodeError::TooLarge { max }));
        }
        assert_eq!(codec::decode_state::<String>(&wire).unwrap(), text, "state may be larger");
    }
}

#[test]
fn what_is_no_value_of_the_type_is_an_error_that_says_so() {
    fn problem<T: DeserializeOwned + Debug>(bytes: &[u8]) -> String {
        codec::decode::<T>(bytes).unwrap_err().to_string()
    }
    let prefix = "the bytes are not a value of the expected type: ";
    assert_eq!(problem::<bool>(&[2]), format!("{prefix}2 is neither false (0) nor true (1)"));
    assert_eq!(problem::<Option<u8>>(&[2]), format!("{prefix}2 is neither None (0) nor Some (1)"));
    assert_eq!(problem::<String>(&[1, 0xff]), format!("{prefix}a string is not UTF-8"));
    assert_eq!(problem::<char>(&[0xff]), format!("{prefix}a character is not UTF-8"));
    assert_eq!(
        problem::<Shape>(&[9]),
        format!("{prefix}invalid value: integer `9`, expected variant index 0 <= i < 4")
    );
    assert!(problem::<Untagged>(&[1]).contains("serde's flatten, untagged, tag"));
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
#[allow(dead_code)]
enum Untagged {
    Number(u64),
}

#[test]
fn a_sequence_of_unknown_length_is_an_encode_error() {
    struct Endless;
    impl Serialize for Endless {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            use serde::ser::SerializeSeq;
            serializer.serialize_seq(None)?.end()
        }
    }
    let error = codec::encode(&Endless).unwrap_err();
    assert!(error.to_string().contains("must know its length"), "{error}");
}
