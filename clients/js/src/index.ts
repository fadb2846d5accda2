/** Stream answers from Headrace over WebSocket. The contract of the server is docs/websocket.md. */

export { type CallOptions, type ClientOptions, HeadraceClient } from "./client.js";
export * from "./errors.js";
export * from "./events.js";
export type { ConnectionState } from "./link.js";
export { DEFAULT_POLICY, type Policy } from "./policy.js";
export { ResponseStream } from "./response_stream.js";
export type { WebSocketConstructor, WebSocketLike } from "./socket.js";
