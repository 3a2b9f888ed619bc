import org.codelibs.opensearch.runner.OpenSearchRunner;

/** Starts the runner's node with roles that the runner leaves out by itself. Java runs this file as it is. */
public class OpenSearchNode {
  public static void main(String[] args) throws Exception {
    OpenSearchRunner runner = new OpenSearchRunner();
    String data = System.getenv("OPENSEARCH_DATA");
    runner.onBuild(
        (number, settings) -> {
          settings.putList(
              "node.roles", "cluster_manager", "data", "ingest", "remote_cluster_client");
          if (data != null) settings.put("path.data", data);
        });
    Runtime.getRuntime().addShutdownHook(new Thread(() -> close(runner)));
    runner.build(args);
    Thread.currentThread().join();
  }

  private static void close(OpenSearchRunner runner) {
    try {
      runner.close();
    } catch (Exception error) {
      error.printStackTrace();
    }
  }
}
