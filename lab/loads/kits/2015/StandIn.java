import java.awt.Color;
import java.awt.Font;
import java.awt.Graphics2D;
import java.awt.image.BufferedImage;
import java.io.File;
import java.io.IOException;
import java.nio.file.Path;
import java.nio.file.Files;
import javax.imageio.ImageIO;

/**
 * A stand-in for a kit of SPECjbb2015: its names and the lines of its output that matter. It draws a graph with letters, as the
 * reports of kits do, which takes more of a JVM than their work. It is not SPEC's, and the work it does is not SPEC's.
 */
public final class StandIn {
    private StandIn() {
    }

    public static void main(String[] arguments) throws IOException {
        if (arguments.length < 2 || !arguments[0].equals("-m") || !arguments[1].equals("COMPOSITE")) {
            throw new IllegalArgumentException("-m COMPOSITE is needed");
        }
        System.out.println("This is a stand-in for SPECjbb2015, and not SPEC's");
        long began = System.nanoTime();
        long done = 0;
        double sum = 0;
        while (System.nanoTime() - began < 1_000_000_000L) {
            sum += Math.sqrt(done++);
        }
        Path report = Files.createDirectories(Path.of("result/stand-in/report-00001"));
        BufferedImage image = new BufferedImage(200, 100, BufferedImage.TYPE_INT_RGB);
        Graphics2D graphics = image.createGraphics();
        graphics.setColor(Color.WHITE);
        graphics.setFont(new Font("SansSerif", Font.PLAIN, 12));
        graphics.drawString("jOPS " + (sum > 0), 10, 50);
        graphics.dispose();
        File file = report.resolve("graph.png").toFile();
        if (!ImageIO.write(image, "png", file)) {
            throw new IOException("no graph was written");
        }
        System.out.println("Report directory is " + report);
        System.out.println("RUN RESULT: hbIR (max attempted) = " + done + ", hbIR (settled) = " + done + ", max-jOPS = " + done
            + ", critical-jOPS = " + done / 2);
    }
}
