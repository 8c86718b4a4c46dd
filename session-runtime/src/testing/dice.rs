//! Where chance comes from: a seed and nothing else.

use chacha20::ChaCha8Rng;
use rand_core::{Infallible, Rng, SeedableRng, TryRng};

/// A generator that a run's every choice is drawn from, so that a run is a function of its seed.
///
/// It is a [`rand_core`] generator, so what `rand` offers works on it, and has a few short ways of its own.
#[derive(Debug)]
pub struct Dice {
    generator: ChaCha8Rng,
}

impl Dice {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self { generator: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// A number below `bound`; 0 where there is none.
    #[allow(clippy::arithmetic_side_effects)] // never by zero
    pub fn below(&mut self, bound: u64) -> u64 {
        self.generator.next_u64() % bound.max(1)
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// One of these; `None` of nothing.
    pub fn pick<'a, T>(&mut self, among: &'a [T]) -> Option<&'a T> {
        let position = self.below(among.len() as u64);
        among.get(usize::try_from(position).ok()?)
    }
}

impl TryRng for Dice {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.generator.next_u32())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.generator.next_u64())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.generator.fill_bytes(bytes);
        Ok(())
    }
}
