//! The secret that ties a lane to its TCP connection.

use core::fmt;

/// 16 random bytes that the receiver of a direction chose for one lane and gave its peer over the link; the peer writes them
/// into TCP where it hops and where it hops back. Only that peer can know them, and each is used for one lane.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token([u8; 16]);

impl Token {
    /// A token from bytes drawn from the kernel's random source, or received in OPEN or OPEN_ACK.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Token(bytes)
    }

    /// The secret itself, to be written into a message or a record, never into a log.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Token {
    /// Says only that there is one: logs are read by others.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_does_not_hold_the_secret() {
        let text = format!("{:?}", Token::from_bytes([0xab; 16]));
        assert!(!text.contains("ab") && !text.contains("171"), "{text}");
    }
}
