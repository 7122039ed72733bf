import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.Set;
import java.util.UUID;

/** Writes orders to a sidecar with nothing but Java's standard library: java Write.java [URL] */
public final class Write {
    private static final Set<Integer> AGAIN = Set.of(408, 409, 429, 502, 503, 504);

    /**
     * Sends lines of JSON in one request, again with the same key where no answer came or the sidecar has too much to
     * do: it writes them once. The answer has a result for each line.
     */
    static String write(String url, String channel, String lines) throws InterruptedException {
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        HttpRequest request = HttpRequest.newBuilder(URI.create(url + "/v1/channels/" + channel + "/messages"))
            .timeout(Duration.ofSeconds(75))
            .header("Content-Type", "application/x-ndjson")
            .header("Idempotency-Key", '"' + UUID.randomUUID().toString() + '"')
            .POST(HttpRequest.BodyPublishers.ofString(lines))
            .build();
        String last = "";
        for (int tried = 0; tried < 8; tried++) {
            if (tried > 0) {
                Thread.sleep(100L << tried);
            }
            try {
                HttpResponse<String> response = client.send(request, HttpResponse.BodyHandlers.ofString());
                if (response.body().startsWith("{\"results\"")) {
                    return response.body();
                }
                last = response.statusCode() + ": " + response.body();
                if (!AGAIN.contains(response.statusCode())) {
                    break;
                }
            } catch (java.io.IOException error) {
                last = error.toString();
            }
        }
        throw new IllegalStateException(last);
    }

    public static void main(String[] arguments) throws InterruptedException {
        String url = arguments.length > 0 ? arguments[0] : "http://127.0.0.1:8600";
        System.out.println(write(url, "orders", """
            {"key": "4711", "json": {"total": 5}}
            {"key": "4712", "json": {"total": 7}}
            """));
    }
}
