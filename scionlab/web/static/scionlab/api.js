// Swagger UI on the page of the API's operations. It is dark where its document has the class, and the browser wants it.
const place = document.getElementById("operations");
document.documentElement.classList.toggle("dark-mode", matchMedia("(prefers-color-scheme: dark)").matches);
SwaggerUIBundle({
  domNode: place,
  url: place.dataset.schema,
  deepLinking: true,
  validatorUrl: null,
  requestInterceptor: (request) => {
    if (request.method !== "GET") request.headers["X-CSRFToken"] = place.dataset.csrf; // changes in a session's name
    return request;
  },
});
