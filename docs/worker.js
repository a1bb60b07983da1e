// A worker in a hidden frame, for search in pages opened from a folder: browsers start no workers there.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const scope = frame.contentWindow;
      const script = scope.document.createElement("script");
      scope.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      };
      scope.importScripts = () => {};
      this.ready = new Promise((resolve) => { script.onload = () => resolve(scope); });
      script.src = url;
      scope.document.head.append(script);
    }
    postMessage(data) {
      this.ready.then((scope) => scope.dispatchEvent(new scope.MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
