// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! How messages encode values, and the macro for the tables of messages.

use super::{MESSAGE_MAX, Reader};
use crate::base::{Error, Result};

/// A value in a message.
pub trait Field<'a>: Sized {
    /// The maximum size of the value in bytes, without data that follows a count or extends to the message's end.
    const LEN: usize;
    /// Appends the value to a message.
    fn write(&self, out: &mut Vec<u8>);
    /// Takes the value off the front of a message.
    fn read(r: &mut Reader<'a>) -> Result<Self>;
}

/// Defines an enum or a struct and implements [`Field`]: the fields in order; in an enum, a byte with the
/// number of the variant precedes them.
macro_rules! wire_format {
    (
        $(#[$attribute:meta])*
        pub enum $Name:ident $(<$life:lifetime>)? {
            $(
                $(#[$doc:meta])*
                $Kind:ident $({ $($field:ident: $Type:ty),+ $(,)? })? $(($($part:ident: $Part:ty),+))? = $number:literal,
            )+
        }
    ) => {
        $(#[$attribute])*
        #[repr(u8)]
        pub enum $Name $(<$life>)? {
            $( $(#[$doc])* $Kind $({ $($field: $Type),+ })? $(($($Part),+))? = $number, )+
        }

        impl<'a> Field<'a> for $Name $(<$life>)? {
            const LEN: usize = $crate::wire::format::longest(&[
                $( 1 $($(+ <$Type as Field<'a>>::LEN)+)? $($(+ <$Part as Field<'a>>::LEN)+)? ),+
            ]);

            // Always inlined, because almost every caller knows the variant.
            #[inline(always)]
            fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $( Self::$Kind $({ $($field),+ })? $(($($part),+))? => {
                        out.push($number);
                        $($($field.write(out);)+)?
                        $($($part.write(out);)+)?
                    } )+
                }
            }

            #[inline(always)]
            fn read(r: &mut Reader<'a>) -> Result<Self> {
                Ok(match r.take::<u8>()? {
                    $( $number => {
                        $($(let $field = r.take()?;)+)?
                        $($(let $part = r.take()?;)+)?
                        Self::$Kind $({ $($field),+ })? $(($($part),+))?
                    } )+
                    number => return Err($crate::wire::format::unknown(stringify!($Name), number)),
                })
            }
        }
    };
    (
        $(#[$attribute:meta])*
        pub struct $Name:ident {
            $( $(#[$doc:meta])* pub $field:ident: $Type:ty, )+
        }
    ) => {
        $(#[$attribute])*
        pub struct $Name {
            $( $(#[$doc])* pub $field: $Type, )+
        }

        impl<'a> Field<'a> for $Name {
            const LEN: usize = 0 $(+ <$Type as Field<'a>>::LEN)+;

            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                $( self.$field.write(out); )+
            }

            #[inline]
            fn read(r: &mut Reader<'a>) -> Result<Self> {
                Ok($Name { $( $field: r.take()?, )+ })
            }
        }
    };
}
pub(crate) use wire_format;

pub(crate) const fn longest(mut lens: &[usize]) -> usize {
    let mut longest = 0;
    while let [len, rest @ ..] = lens {
        longest = if *len > longest { *len } else { longest };
        lens = rest;
    }
    longest
}

#[cold]
pub(crate) fn unknown(name: &str, number: u8) -> Error {
    Error::new(format!("unknown {name} {number} in a message"))
}

macro_rules! numbers {
    ($($Number:ty),+) => { $(
        impl<'a> Field<'a> for $Number {
            const LEN: usize = size_of::<$Number>();

            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn read(r: &mut Reader<'a>) -> Result<Self> {
                Ok(<$Number>::from_le_bytes(r.array()?))
            }
        }
    )+ };
}
numbers!(u8, u16, u32, u64, u128);

impl<'a> Field<'a> for bool {
    const LEN: usize = 1;

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    #[inline]
    fn read(r: &mut Reader<'a>) -> Result<Self> {
        match r.take::<u8>()? {
            0 => Ok(false),
            1 => Ok(true),
            n => Err(unknown("flag", n)),
        }
    }
}

impl<'a> Field<'a> for [u32; 3] {
    const LEN: usize = 3 * u32::LEN;

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|n| n.write(out));
    }

    #[inline]
    fn read(r: &mut Reader<'a>) -> Result<Self> {
        Ok([r.take()?, r.take()?, r.take()?])
    }
}

impl<'a, A: Field<'a>, B: Field<'a>> Field<'a> for (A, B) {
    const LEN: usize = A::LEN + B::LEN;

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }

    #[inline]
    fn read(r: &mut Reader<'a>) -> Result<Self> {
        Ok((r.take()?, r.take()?))
    }
}

/// The remaining message.
impl<'a> Field<'a> for &'a [u8] {
    const LEN: usize = 0;

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    #[inline]
    fn read(r: &mut Reader<'a>) -> Result<Self> {
        r.bytes(r.0.len())
    }
}

/// The remaining message; a longer text is truncated.
impl<'a> Field<'a> for String {
    const LEN: usize = 0;

    fn write(&self, out: &mut Vec<u8>) {
        let end = self.floor_char_boundary(MESSAGE_MAX.saturating_sub(out.len()));
        out.extend_from_slice(&self.as_bytes()[..end]);
    }

    fn read(r: &mut Reader<'a>) -> Result<Self> {
        Ok(String::from_utf8_lossy(r.take()?).into_owned())
    }
}

/// Bytes after their count, so that another field can follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    pub(crate) fn text(self) -> String {
        String::from_utf8_lossy(self.0).into_owned()
    }
}

impl<'a> Field<'a> for Bytes<'a> {
    const LEN: usize = u32::LEN;

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).write(out);
        out.extend_from_slice(self.0);
    }

    #[inline]
    fn read(r: &mut Reader<'a>) -> Result<Self> {
        let len: u32 = r.take()?;
        Ok(Bytes(r.bytes(len as usize)?))
    }
}
