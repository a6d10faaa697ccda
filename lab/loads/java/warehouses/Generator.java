package warehouses;

/**
 * Random numbers that are the same on every machine: SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
 * Generators, OOPSLA 2014). java.util.Random would do; this one cannot change with the library.
 */
final class Generator {
    private long state;

    Generator(long seed) {
        state = seed;
    }

    long next() {
        long z = (state += 0x9E3779B97F4A7C15L);
        z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return z ^ (z >>> 31);
    }

    /** From 0 to bound - 1. */
    int below(int bound) {
        return (int) Math.unsignedMultiplyHigh(next(), bound);
    }

    /** From least to most, both included. */
    int between(int least, int most) {
        return least + below(most - least + 1);
    }

    /** From 0 to bound - 1, a few of them far more often than the rest, as customers and wares are in demand. */
    int skewed(int bound) {
        return Math.min(below(bound), Math.min(below(bound), below(bound)));
    }
}
