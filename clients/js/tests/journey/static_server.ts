/** Serves the example page and the built client, and nothing else. */

import { readFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join, resolve } from "node:path";

const PACKAGE = resolve(import.meta.dirname, "../..");
const TYPES: Record<string, string> = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" };

export class StaticServer {
  private constructor(private readonly server: Server) {}

  static async start(): Promise<StaticServer> {
    const server = createServer((request, response) => {
      const path = new URL(request.url ?? "/", "http://here").pathname; // normalized: no way up
      if (!/^\/(examples|dist)\//.test(path)) {
        response.writeHead(404).end();
        return;
      }
      readFile(join(PACKAGE, path)).then(
        (body) => response.writeHead(200, { "content-type": TYPES[extname(path)] ?? "application/octet-stream" }).end(body),
        () => response.writeHead(404).end(),
      );
    });
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    return new StaticServer(server);
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((done) => this.server.close(done));
  }
}
