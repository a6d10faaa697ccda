package warehouses;

/** What the company sells: shared by all warehouses, and never written after it was made. */
final class Catalogue {
    private final String[] names;
    private final int[] prices;

    Catalogue(int items, Generator random) {
        names = new String[items];
        prices = new int[items];
        for (int item = 0; item < items; item++) {
            names[item] = "ware-" + Long.toString(random.next() & 0xFFFF_FFFFL, 36);
            prices[item] = random.between(100, 10_000);
        }
    }

    int size() {
        return names.length;
    }

    String name(int item) {
        return names[item];
    }

    /** In cents. */
    int price(int item) {
        return prices[item];
    }
}
