//! Numbers in the fields of a CSV line.

/// The next field and what is behind its comma; `None` behind the last one.
#[inline]
pub(super) fn split(rest: &[u8]) -> (&[u8], Option<&[u8]>) {
    match rest.iter().position(|b| *b == b',') {
        Some(comma) => (&rest[..comma], Some(&rest[comma + 1..])),
        None => (rest, None),
    }
}

/// A whole number without a sign; `None` for anything else, an empty field and what does not fit included.
#[inline]
pub(super) fn unsigned(field: &[u8]) -> Option<u64> {
    if field.is_empty() || field.len() > 20 {
        return None;
    }
    let mut value: u64 = 0;
    // Nineteen digits always fit.
    let (head, last) = field.split_at(field.len().min(19));
    for byte in head {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    for byte in last {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// As [`unsigned`], within 32 bits.
#[inline]
pub(super) fn unsigned_32(field: &[u8]) -> Option<u32> {
    unsigned(field).and_then(|value| u32::try_from(value).ok())
}

/// A decimal number, rounded to the nearest `f32`; NaN for `nan`; `None` for infinities and anything else.
#[inline]
pub(super) fn real_32(field: &[u8]) -> Option<f32> {
    short_real(field).or_else(|| {
        if field.eq_ignore_ascii_case(b"nan") || field.eq_ignore_ascii_case(b"-nan") {
            return Some(f32::NAN);
        }
        plain(field)?.parse().ok().filter(|value: &f32| value.is_finite())
    })
}

/// A decimal number; `None` for infinities, NaN and anything else.
pub(super) fn real_64(field: &[u8]) -> Option<f64> {
    plain(field)?.parse().ok().filter(|value: &f64| value.is_finite())
}

/// Text that can only be a decimal number: parsers accept words such as `infinity`, too.
fn plain(field: &[u8]) -> Option<&str> {
    let number = |b: &u8| matches!(b, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E');
    field.iter().all(number).then(|| std::str::from_utf8(field).ok()).flatten()
}

/// `digits[.digits]` of at most 7 digits. Both the digits and the power of ten are exact as `f32`, so that their
/// quotient is the nearest `f32` to the number.
#[inline]
fn short_real(field: &[u8]) -> Option<f32> {
    const POWERS: [f32; 8] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7];
    let (mut digits, mut decimals, mut point) = (0_u32, 0, false);
    if field.is_empty() || field.len() > 9 {
        return None;
    }
    for byte in field {
        match byte {
            b'0'..=b'9' => {
                digits = digits * 10 + u32::from(byte - b'0');
                decimals += usize::from(point);
            }
            b'.' if !point => point = true,
            _ => return None,
        }
    }
    if digits >= 1 << 24 || decimals > 7 || field == b"." {
        return None;
    }
    Some(digits as f32 / POWERS[decimals])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_whole_and_in_range_or_refused() {
        assert_eq!(unsigned(b"0"), Some(0));
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        for bad in [
            "",
            "18446744073709551616",
            "99999999999999999999",
            "-1",
            "+1",
            " 1",
            "1 ",
            "1.0",
            "0x1",
            "1\0",
        ] {
            assert_eq!(unsigned(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(
            (unsigned_32(b"4294967295"), unsigned_32(b"4294967296")),
            (Some(u32::MAX), None)
        );
    }

    #[test]
    fn short_and_long_reals_are_the_nearest_ones() {
        for text in
            ["0.181899", "0.0976991", "1", "0.5", "7.", ".25", "0.0000001", "16777215", "16777217"]
        {
            assert_eq!(real_32(text.as_bytes()), Some(text.parse::<f32>().unwrap()), "{text}");
        }
        for text in ["0.05598650127649307", "1e-9", "-0.25", "123456789.5"] {
            assert_eq!(real_32(text.as_bytes()), Some(text.parse::<f32>().unwrap()), "{text}");
        }
        assert!(real_32(b"nan").unwrap().is_nan());
        for bad in ["", ".", "inf", "1e60", "0.1x", "infinity", "1..2", "1,2"] {
            assert_eq!(real_32(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(real_64(b"nan"), None);
    }

    #[test]
    fn every_short_decimal_is_exact() {
        for digits in (0..10_000_000_u32).step_by(4_999) {
            let text = format!("0.{digits:07}");
            assert_eq!(real_32(text.as_bytes()), Some(text.parse::<f32>().unwrap()), "{text}");
        }
    }
}
