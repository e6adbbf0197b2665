//! What the agents send, and how they say what they received.
//!
//! Byte `n` that an end sends is a function of the end and of `n`, so a lost, doubled or displaced byte shows.

/// Bytes `8 * word` to `8 * word + 7` of what the end with this tag sends.
fn word(tag: u64, word: u64) -> [u8; 8] {
    let mut x = ((tag << 56) ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)).to_le_bytes()
}

/// `length` bytes from `position` on.
pub fn pattern(tag: u64, position: u64, length: usize) -> Vec<u8> {
    let skip = (position % 8) as usize;
    let mut bytes = Vec::with_capacity(skip + length + 8);
    let mut next = position / 8;
    while bytes.len() < skip + length {
        bytes.extend_from_slice(&word(tag, next));
        next += 1;
    }
    bytes.truncate(skip + length);
    bytes.drain(..skip);
    bytes
}

/// A running FNV-1a.
#[derive(Clone, Copy)]
pub struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    /// Takes in these bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Eight hexadecimal digits: enough to tell two transcripts apart, short enough to read.
    pub fn text(self) -> String {
        format!("{:08x}", (self.0 >> 32) ^ (self.0 & 0xffff_ffff))
    }
}

/// The hash of one piece.
pub fn hash(bytes: &[u8]) -> String {
    let mut hash = Hash::default();
    hash.add(bytes);
    hash.text()
}
